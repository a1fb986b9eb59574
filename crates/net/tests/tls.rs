//! TLS between our two sides: who is believed, who is not, and how files are read again.

use std::fs;
use std::io::{self, IoSlice};
use std::path::Path;
use std::time::{Duration, Instant};

use weir_net::tls::{Acceptor, Connector, Line, Severity};
use weir_net::{Address, Listener, Progress, Stream, Tls, TlsOptions};
use weir_testkit::pki::{AUTHORITY, LEAF, Pki, Shape};

/// Certificates that `openssl` makes, or a note that it is missing.
macro_rules! pki {
    ($make:expr) => {
        match $make {
            Some(pki) => pki,
            None => {
                println!("skipped: openssl is not installed");
                return;
            }
        }
    };
}

fn said(tls: &mut Tls) -> Vec<String> {
    tls.take_log().into_iter().map(|line| line.text).collect()
}

/// Connects one to the other: both ends, or what each of them said about it.
fn connect(acceptor: &Acceptor, connector: &Connector) -> Result<(Stream, Stream), Vec<String>> {
    let any = Address::parse("pssl:0:127.0.0.1", Path::new("/")).unwrap();
    let listener =
        Listener::open(&any, "pssl:0:127.0.0.1", None).unwrap_or_else(|e| panic!("{}", e.text));
    assert!(listener.is_tls());
    let address = format!("ssl:127.0.0.1:{}", listener.port().unwrap());
    let address = Address::parse(&address, Path::new("/")).unwrap();
    let mut client = Stream::connect(&address, Some(connector)).unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    let accepted = loop {
        if let Some(accepted) = listener.accept().unwrap() {
            break accepted;
        }
        assert!(Instant::now() < limit, "nobody came");
    };
    let mut server = accepted.stream.accept_tls(acceptor).unwrap();
    shake(&mut server, &mut client, limit)?;
    Ok((server, client))
}

fn shake(server: &mut Stream, client: &mut Stream, limit: Instant) -> Result<(), Vec<String>> {
    let mut ends = [None, None];
    while ends.iter().any(Option::is_none) {
        assert!(Instant::now() < limit, "the handshake stands still: {ends:?}");
        for (end, stream) in ends.iter_mut().zip([&mut *server, &mut *client]) {
            if end.is_none() {
                *end = match stream.finish_connect() {
                    Ok(Progress::Done) => Some(Ok(())),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                };
            }
        }
        // One side has given up: the other may only hear of it with the next read.
        if ends.iter().any(|end| matches!(end, Some(Err(_)))) {
            let lines = [server.take_log(), client.take_log()].concat();
            return Err(lines.into_iter().map(|line| line.text).collect());
        }
    }
    // A client of TLS 1.3 is done before the server has seen its certificate.
    match read(client) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        _ => Err(client.take_log().into_iter().map(|line| line.text).collect()),
    }
}

fn read(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.read_spare(&mut bytes, &mut [0; 1000])?;
    Ok(bytes)
}

/// Both sides with these options.
fn meet(server: &TlsOptions, client: &TlsOptions) -> Result<(Stream, Stream), Vec<String>> {
    let (mut server, mut client) = (Tls::new(server), Tls::new(client));
    let acceptor = server.acceptor().unwrap_or_else(|_| panic!("{:?}", server.take_log()));
    let connector = client.connector().unwrap_or_else(|_| panic!("{:?}", client.take_log()));
    connect(&acceptor, &connector)
}

/// The client is believed, and known by this name.
fn knows(server: &TlsOptions, client: &TlsOptions, name: &str) {
    let (server, _client) = meet(server, client).unwrap();
    assert_eq!(server.peer_name().as_deref(), Some(name));
}

fn refuses(server: &TlsOptions, client: &TlsOptions, reason: &str) {
    let said = meet(server, client).map(|_| ()).expect_err(reason);
    assert!(said.iter().any(|line| line.contains(reason)), "{said:?} says nothing of {reason}");
}

#[test]
fn a_client_is_known_by_its_common_name() {
    let pki = pki!(Pki::usual("usual"));
    let (server, client) = (pki.options("server", "ca"), pki.options("client", "ca"));
    for protocols in ["TLSv1.2", "TLSv1.3", "TLSv1.2+"] {
        let client = TlsOptions { protocols: Some(protocols.into()), ..client.clone() };
        knows(&server, &client, "client");
    }
}

#[test]
fn what_openssl_believes_is_believed() {
    let pki = pki!(Pki::usual("odd"));
    let san = ["basicConstraints=CA:FALSE", "subjectAltName=DNS:sw id:8bd5-11 x"];
    for (name, shape) in [
        ("v1", Shape::default()),
        ("v1-rsa", Shape { is_rsa: true, ..Shape::default() }),
        ("rsa", Shape { is_rsa: true, extensions: LEAF, ..Shape::default() }),
        ("san", Shape { extensions: &san, ..Shape::default() }),
    ] {
        pki.signed(name, "ca", name, shape);
        let odd = pki.options(name, "ca");
        knows(&pki.options("server", "ca"), &odd, name);
        let old = TlsOptions { protocols: Some("TLSv1.2".into()), ..odd.clone() };
        knows(&odd, &old, name);
    }
    // An authority that is its own leaf, of version 3 and of version 1.
    let authority = pki.options("ca", "ca");
    knows(&authority, &authority, "Root ca");
    pki.self_signed("old", "old", Shape::default());
    pki.signed("of-old", "old", "of-old", Shape::default());
    knows(&pki.options("old", "old"), &pki.options("of-old", "old"), "of-old");
}

#[test]
fn chains_may_be_long() {
    let pki = pki!(Pki::usual("chain"));
    pki.signed("middle", "ca", "middle", Shape { extensions: AUTHORITY, ..Shape::default() });
    pki.signed("leaf", "middle", "leaf", Shape { extensions: LEAF, ..Shape::default() });
    let server = pki.options("server", "ca");
    refuses(&server, &pki.options("leaf", "ca"), "UnknownIssuer");
    let sent =
        TlsOptions { peer_ca_cert: Some(pki.certificate("middle")), ..pki.options("leaf", "ca") };
    knows(&server, &sent, "leaf");
    let both: String =
        ["leaf", "middle"].map(|n| fs::read_to_string(pki.certificate(n)).unwrap()).concat();
    fs::write(pki.certificate("both"), both).unwrap();
    let chained =
        TlsOptions { certificate: Some(pki.certificate("both")), ..pki.options("leaf", "ca") };
    knows(&server, &chained, "leaf");
}

#[test]
fn what_openssl_refuses_is_refused() {
    let pki = pki!(Pki::usual("bad"));
    pki.authority("other");
    pki.signed("stranger", "other", "client", Shape { extensions: LEAF, ..Shape::default() });
    let old = Shape { is_expired: true, extensions: LEAF, ..Shape::default() };
    pki.signed("expired", "ca", "expired", old);
    let only = ["basicConstraints=CA:FALSE", "extendedKeyUsage=serverAuth"];
    pki.signed("only-server", "ca", "x", Shape { extensions: &only, ..Shape::default() });
    let sign = ["basicConstraints=CA:FALSE", "keyUsage=keyCertSign"];
    pki.signed("only-sign", "ca", "x", Shape { extensions: &sign, ..Shape::default() });
    let critical = ["1.2.3.4=critical,ASN1:UTF8String:x"];
    pki.signed("critical", "ca", "x", Shape { extensions: &critical, ..Shape::default() });
    pki.self_signed("alone", "alone", Shape::default());
    // A root of the same name that is not the one that is believed.
    pki.self_signed("twin", "Root ca", Shape { extensions: AUTHORITY, ..Shape::default() });
    pki.signed("of-twin", "twin", "client", Shape::default());
    for (client, reason) in [
        ("stranger", "UnknownIssuer"),
        ("alone", "UnknownIssuer"),
        ("expired", "Expired"),
        ("only-server", "InvalidPurpose"),
        ("only-sign", "InvalidPurpose"),
        ("critical", "UnhandledCriticalExtension"),
        ("of-twin", "BadSignature"),
    ] {
        refuses(&pki.options("server", "ca"), &pki.options(client, "ca"), reason);
        let is_server = client != "only-server";
        if is_server {
            refuses(&pki.options(client, "ca"), &pki.options("client", "ca"), reason);
        }
    }
}

#[test]
fn only_authorities_sign() {
    let pki = pki!(Pki::usual("sign"));
    let limited = ["basicConstraints=critical,CA:TRUE,pathlen:0", "subjectKeyIdentifier=hash"];
    let named = ["basicConstraints=critical,CA:TRUE", "nameConstraints=critical,permitted;DNS:x"];
    for (name, extensions) in
        [("leafs", LEAF), ("v1s", &[][..]), ("limited", &limited), ("named", &named)]
    {
        pki.signed(name, "ca", name, Shape { extensions, ..Shape::default() });
    }
    pki.signed("below", "limited", "below", Shape { extensions: AUTHORITY, ..Shape::default() });
    for (issuer, sent, reason) in [
        ("leafs", &["leafs"][..], "InvalidPurpose"),
        ("v1s", &["v1s"], "InvalidPurpose"),
        ("named", &["named"], "UnhandledCriticalExtension"),
        ("below", &["below", "limited"], "InvalidPurpose"),
    ] {
        let leaf = format!("of-{issuer}");
        pki.signed(&leaf, issuer, &leaf, Shape::default());
        let chain: String =
            sent.iter().map(|name| fs::read_to_string(pki.certificate(name)).unwrap()).collect();
        fs::write(pki.path("sent.pem"), chain).unwrap();
        let client =
            TlsOptions { peer_ca_cert: Some(pki.path("sent.pem")), ..pki.options(&leaf, "ca") };
        refuses(&pki.options("server", "ca"), &client, reason);
    }
    // One below the limit is what the limit allows.
    pki.signed("fine", "limited", "fine", Shape::default());
    let client =
        TlsOptions { peer_ca_cert: Some(pki.certificate("limited")), ..pki.options("fine", "ca") };
    knows(&pki.options("server", "ca"), &client, "fine");
}

#[test]
fn an_authority_vouches_only_for_what_it_is_for() {
    let pki = pki!(Pki::usual("usage"));
    let of = |usage| [AUTHORITY[0], AUTHORITY[1], usage];
    for (name, usage) in [
        ("mail", "extendedKeyUsage=emailProtection"),
        ("servers", "extendedKeyUsage=serverAuth"),
        ("both", "extendedKeyUsage=serverAuth,clientAuth"),
    ] {
        pki.signed(name, "ca", name, Shape { extensions: &of(usage), ..Shape::default() });
        pki.self_signed(
            &format!("root-{name}"),
            &format!("root-{name}"),
            Shape { extensions: &of(usage), ..Shape::default() },
        );
    }
    for (issuer, as_client, as_server) in
        [("mail", false, false), ("servers", false, true), ("both", true, true)]
    {
        let (leaf, of_root) = (format!("of-{issuer}"), format!("of-root-{issuer}"));
        pki.signed(&leaf, issuer, &leaf, Shape { extensions: LEAF, ..Shape::default() });
        let root = format!("root-{issuer}");
        pki.signed(&of_root, &root, &of_root, Shape { extensions: LEAF, ..Shape::default() });
        let below =
            TlsOptions { peer_ca_cert: Some(pki.certificate(issuer)), ..pki.options(&leaf, "ca") };
        let peer = |ca: &str| pki.options("server", ca);
        for (who, other) in [(below, peer("ca")), (pki.options(&of_root, "ca"), peer(&root))] {
            match as_client {
                true => drop(meet(&other, &who).unwrap()),
                false => refuses(&other, &who, "InvalidPurpose"),
            }
            match as_server {
                true => drop(meet(&who, &other).unwrap()),
                false => refuses(&who, &other, "InvalidPurpose"),
            }
        }
    }
}

#[test]
fn none_believes_everybody() {
    let pki = pki!(Pki::usual("none"));
    pki.self_signed("alone", "alone", Shape::default());
    let none = |name: &str| TlsOptions { ca_cert: Some("none".into()), ..pki.options(name, "ca") };
    let (server, _client) = meet(&none("alone"), &none("alone")).unwrap();
    // Nobody was asked for a certificate.
    assert_eq!(server.peer_name(), None);
    let said = said(&mut Tls::new(&none("alone")));
    assert_eq!(said, ["Peer certificate validation disabled (this is a security risk)"]);
}

#[test]
fn key_certificate_and_authorities_are_read_again() {
    let pki = pki!(Pki::usual("reload"));
    let mut server = Tls::new(&pki.options("server", "ca"));
    let mut client = Tls::new(&pki.options("client", "ca"));
    let (acceptor, connector) = (server.acceptor().unwrap(), client.connector().unwrap());
    let (mut old_server, mut old_client) = connect(&acceptor, &connector).unwrap();

    // A new authority: both sides change, the server's files one after the other.
    pki.authority("new");
    let shape = Shape { extensions: LEAF, ..Shape::default() };
    pki.signed("server2", "new", "server2", shape);
    pki.signed("client2", "new", "client2", shape);
    fs::copy(pki.key("server2"), pki.key("server")).unwrap();
    assert!(connect(&server.acceptor().unwrap(), &connector).is_ok(), "the old pair stays");
    fs::copy(pki.certificate("server2"), pki.certificate("server")).unwrap();
    assert!(connect(&server.acceptor().unwrap(), &connector).is_err(), "another authority");
    fs::copy(pki.certificate("new"), pki.certificate("ca")).unwrap();
    let late = Tls::new(&pki.options("client2", "ca")).connector().unwrap();
    let (new_server, _) = connect(&server.acceptor().unwrap(), &late).unwrap();
    assert_eq!(new_server.peer_name().as_deref(), Some("client2"));
    assert!(connect(&server.acceptor().unwrap(), &connector).is_err(), "the old client");

    // The first connection has not noticed.
    old_client.write_vectored(&[IoSlice::new(b"[1"), IoSlice::new(b"]")]).unwrap();
    old_server.wait(Progress::Read, Some(Duration::from_secs(20))).unwrap();
    assert_eq!(read(&mut old_server).unwrap(), b"[1]");
}

#[test]
fn missing_files_are_named_and_found_later() {
    let pki = pki!(Pki::usual("missing"));
    let (key, ca) =
        (fs::read(pki.key("server")).unwrap(), fs::read(pki.certificate("ca")).unwrap());
    fs::remove_file(pki.key("server")).unwrap();
    fs::remove_file(pki.certificate("ca")).unwrap();
    let mut tls = Tls::new(&pki.options("server", "ca"));
    assert_eq!(
        said(&mut tls),
        [
            "SSL_use_PrivateKey_file: error:80000002:system library::No such file or directory"
                .to_owned(),
            format!(
                "failed to load client certificates from {}: \
                 error:80000002:system library::No such file or directory",
                pki.certificate("ca")
            )
        ]
    );
    let error = tls.acceptor().unwrap_err();
    assert_eq!(error.to_string(), "Protocol not available (os error 92)");
    assert_eq!(
        said(&mut tls),
        [
            "Private key must be configured to use SSL/TLS",
            "CA certificate must be configured to use SSL/TLS"
        ]
    );
    fs::write(pki.key("server"), key).unwrap();
    fs::write(pki.certificate("ca"), ca).unwrap();
    assert!(tls.acceptor().is_ok(), "{:?}", said(&mut tls));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let pki = pki!(Pki::usual("mismatch"));
    let wrong = TlsOptions { private_key: Some(pki.key("client")), ..pki.options("server", "ca") };
    let mut tls = Tls::new(&wrong);
    assert!(tls.acceptor().is_err());
    assert_eq!(said(&mut tls), ["Private key does not match certificate public key"]);
}

#[test]
fn the_first_server_s_root_is_kept() {
    let pki = pki!(Pki::usual("bootstrap"));
    let file = pki.path("learnt.pem");
    let client =
        TlsOptions { ca_cert: Some(file.clone()), bootstrap: true, ..pki.options("client", "ca") };
    let (mut server, mut client) = (Tls::new(&pki.options("server", "ca")), Tls::new(&client));
    let acceptor = server.acceptor().unwrap();
    let said = connect(&acceptor, &client.connector().unwrap()).unwrap_err();
    assert_eq!(said[0], format!("successfully bootstrapped CA cert to {file}"));
    assert!(
        said[1].starts_with(&format!("Trusting CA cert from {file} (/O=Weir tests/CN=Root ca) (")),
        "{said:?}"
    );
    assert_eq!(said[2], "killing successful connection to retry using CA cert");
    assert!(connect(&acceptor, &client.connector().unwrap()).is_ok());
    // From now on it is the only one.
    pki.self_signed("alone", "alone", Shape { extensions: AUTHORITY, ..Shape::default() });
    let mut other = Tls::new(&pki.options("alone", "ca"));
    assert!(connect(&other.acceptor().unwrap(), &client.connector().unwrap()).is_err());
}

#[test]
fn a_server_names_what_it_is_asked_for() {
    let pki = pki!(Pki::usual("sni"));
    let server = pki.options("server", "ca");
    let asks = |name: &str| TlsOptions {
        server_name: Some(name.to_owned()),
        ..pki.options("client", "ca")
    };
    let line = |name: &str| Line {
        severity: Severity::Debug,
        text: format!("connection indicated server name {name}"),
    };
    let (mut asked, _client) = meet(&server, &asks("nb.example")).unwrap();
    assert_eq!(asked.take_log(), [line("nb.example")]);
    // An address is no name.
    let (mut plain, _client) = meet(&server, &pki.options("client", "ca")).unwrap();
    assert_eq!(plain.take_log(), []);
    // Nothing is believed of those that are refused.
    pki.authority("foreign");
    let ca_cert = Some(pki.certificate("foreign"));
    let said = meet(&TlsOptions { ca_cert, ..server }, &asks("sb.example")).unwrap_err();
    assert!(!said.contains(&line("sb.example").text), "{said:?}");
}

#[test]
fn long_messages_cross_in_both_directions() {
    let pki = pki!(Pki::usual("long"));
    let (server, client) = (pki.options("server", "ca"), pki.options("client", "ca"));
    let (mut server, mut client) = meet(&server, &client).unwrap();
    let message: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
    for (from, to) in [(&mut server, &mut client)] {
        let (mut sent, mut received) = (0, Vec::new());
        while received.len() < message.len() {
            if sent < message.len() {
                let (first, second) = message[sent..].split_at((message.len() - sent) / 3);
                match from.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
                    Ok(count) => sent += count,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            } else {
                from.write_pending().unwrap();
            }
            match to.read_spare(&mut received, &mut [0; 70_000]) {
                Ok(count) => assert_ne!(count, 0),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(received == message, "what arrives is what was sent");
        assert!(!from.has_pending());
    }
    // A goodbye is an end, and so is a broken connection.
    drop(server);
    client.wait(Progress::Read, Some(Duration::from_secs(20))).unwrap();
    assert_eq!(read(&mut client).unwrap(), b"");
}
