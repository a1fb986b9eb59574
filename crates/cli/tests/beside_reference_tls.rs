//! TLS beside the reference: who may come in with which settings, from files and from a database.

use crate::beside::Beside;
use weir_testkit::pki::{Pki, Shape};

/// What every script may use: certificates `server`, `client` and, of another authority, `other`.
/// The words of a refusal that both sides log.
fn alike(name: &str, script: &str, words: &[&str]) {
    let (Some(beside), Some(pki)) = (Beside::new(), Pki::usual(name)) else { return };
    pki.authority("foreign");
    pki.signed("other", "foreign", "other", Shape::default());
    pki.signed("expired", "ca", "expired", Shape { is_expired: true, ..Shape::default() });
    let names = ["ca", "foreign", "server", "client", "other", "expired"];
    let certificates = names.map(|name| {
        format!("{name}_cert={}\n{name}_key={}\n", pki.certificate(name), pki.key(name))
    });
    let prelude = format!(
        "{}
        port() {{ sed -n 's/.*0:127.0.0.1: listening on port //p' ovsdb-server.log | tail -1; }}
        come() {{
            timeout 20 ovsdb-client -vconsole:off list-dbs ssl:127.0.0.1:$(port) \"$@\" \\
                >/dev/null 2>&1
            echo \"came $?\"
        }}
        client() {{ come -p $client_key -c $client_cert -C $ca_cert \"$@\"; }}
        other() {{ come -p $other_key -c $other_cert -C $ca_cert \"$@\"; }}
        ",
        certificates.concat()
    );
    let said = beside.alike(&format!("{prelude}{script}"));
    for words in ["came 0", "came 1"].iter().chain(words) {
        assert!(said.contains(words), "{words}\n{said}");
    }
}

#[test]
fn settings_from_files() {
    alike(
        "files",
        "
        create; start d.db --remote=pssl:0:127.0.0.1 -p $server_key -c $server_cert -C $ca_cert
        client; other; client -C $foreign_cert; client -C none; come -p none -c none -C $ca_cert
        client --ssl-protocols=TLSv1.2; client --ssl-protocols=TLSv1.1
        come -p $client_key -c $client_cert --bootstrap-ca-cert=$PWD/boot.pem; ls boot.pem
        stop
        start d.db --remote=pssl:0:127.0.0.1 -p $server_key -c $server_cert -C none
        client; other; stop
        start d.db --remote=pssl:0:127.0.0.1 -p $server_key -c $server_cert --ssl-protocols=TLSv1.2
        client; stop
        start d.db --remote=pssl:0:127.0.0.1 -p $server_key -c $server_cert -C $ca_cert \\
            --ssl-protocols=TLSv1.2 --ssl-ciphers=HIGH:!aNULL:!MD5
        client; client --ssl-protocols=TLSv1.2; stop
        start d.db --remote=pssl:0:127.0.0.1 -p $client_key -c $server_cert -C $ca_cert
        client; stop
        ",
        &[],
    );
}

#[test]
fn settings_from_a_database() {
    alike(
        "database",
        r#"
        create; start d.db --remote=punix:s --remote=pssl:0:127.0.0.1 -p db:D,S,private_key \
            -c db:D,S,certificate -C db:D,S,ca_cert --ssl-protocols=db:D,S,ssl_protocols \
            --ssl-ciphers=db:D,S,ssl_ciphers
        # The reference answers before it reads the new settings, and before whoever asks next is answered.
        set_to() {
            transact "[\"D\",{\"op\":\"update\",\"table\":\"S\",\"where\":[],\"row\":{$1}}]"
            transact '["D"]' >/dev/null
        }
        client
        transact '["D",{"op":"insert","table":"S","row":{}}]' >/dev/null; client
        set_to "\"private_key\":\"$server_key\",\"certificate\":\"$server_cert\",\"ca_cert\":\"$ca_cert\""
        client; other
        set_to "\"ca_cert\":\"$foreign_cert\""; client; other
        set_to "\"ca_cert\":\"$ca_cert\",\"ssl_protocols\":\"TLSv1.2\""
        client; client --ssl-protocols=TLSv1.2
        set_to '"ssl_protocols":"","ssl_ciphers":"ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384"'
        client --ssl-protocols=TLSv1.2; client
        transact '["D",{"op":"delete","table":"S","where":[]}]'
        stop
        "#,
        &[],
    );
}

/// What is found in both logs: the server's, and what clients say of their own.
#[test]
fn words_of_refusals() {
    alike(
        "words",
        r#"
        create
        start d.db --remote=pssl:0:127.0.0.1 -p $server_key -c $server_cert -C $ca_cert \
            -vstream_ssl:file:dbg
        # OpenSSL's code and words; what follows in parentheses is ours.
        words() { sed -n 's/.*stream_ssl|\(.*SSL routines::[a-z0-9 ]*[a-z0-9]\).*/\1/p' "$@"; }
        # The server may come to it later than the client.
        count() { grep -c 'stream_ssl|.*SSL_accept' ovsdb-server.log; }
        refuse() {
            before=$(count)
            timeout 20 ovsdb-client -vsyslog:off -vconsole:warn list-dbs ssl:127.0.0.1:$(port) \
                "$@" >said 2>&1; echo "came $?"
            wait_for '[ $(count) -gt $before ]'
            echo "client: $(words said)"; echo "server: $(words ovsdb-server.log | tail -1)"
        }
        client
        refuse -p $other_key -c $other_cert -C $ca_cert --ssl-protocols=TLSv1.2
        refuse -p $expired_key -c $expired_cert -C $ca_cert --ssl-protocols=TLSv1.2
        refuse -p $client_key -c $client_cert -C $foreign_cert --ssl-protocols=TLSv1.2
        refuse -p $client_key -c $client_cert -C $foreign_cert
        ask() { openssl s_client -connect 127.0.0.1:$(port) "$@" </dev/null >/dev/null 2>&1; }
        ask -servername nb.example -cert $client_cert -key $client_key
        ask -noservername -cert $client_cert -key $client_key
        ask -servername nobody.example
        ask -servername sb.example -cert $client_cert -key $client_key
        wait_for 'grep -q sb.example ovsdb-server.log'
        grep -o 'stream_ssl|DBG|connection .*' ovsdb-server.log
        stop
        "#,
        &[
            "client: WARN|SSL_connect: error:0A000418:SSL routines::tlsv1 alert unknown ca",
            "client: WARN|SSL_connect: error:0A000415:SSL routines::sslv3 alert certificate expired",
            "client: WARN|SSL_connect: error:0A000086:SSL routines::certificate verify failed",
            "server: WARN|SSL_accept: error:0A000418:SSL routines::tlsv1 alert unknown ca",
            "server: WARN|SSL_accept: error:0A000086:SSL routines::certificate verify failed",
            "connection indicated server name sb.example",
        ],
    );
}
