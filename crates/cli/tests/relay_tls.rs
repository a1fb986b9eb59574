//! A relay behind TLS on both sides: it follows its source by TLS, its clients are known by their certificates, and
//! its remote gives them a role, which the source knows nothing of.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::group::Program::{self, Packaged, Weir};
use crate::peer::Client;
use crate::support::{PATIENCE, RBAC_TABLES, Scratch, WEIR, err, eventually, listens, reference};
use serde_json::{Value, json};
use weir_net::{Address, BlockingStream, Tls};
use weir_testkit::pki::{LEAF, Pki, Shape};

fn schema() -> String {
    let tables = r#""Chassis":{"isRoot":true,"columns":{"name":{"type":"string"},
        "note":{"type":"string"},"owner":{"type":"string"}}},
        "Global":{"isRoot":true,"columns":{"n":{"type":"integer"}}}"#;
    format!(r#"{{"name":"D","version":"1.0.0","tables":{{{tables},{RBAC_TABLES}}}}}"#)
}

/// Processes that end with the test.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The port that a server has chosen, by its log.
fn port(log: &PathBuf) -> u16 {
    let mut port = None;
    eventually("the server listens", || {
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let line = log.lines().find(|line| line.contains(": listening on port "));
        port = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        port.is_some()
    });
    port.expect("it has just been found")
}

/// The answer to a transaction of who shows the certificate `name`.
fn ask(pki: &Pki, name: &str, port: u16, operation: &Value) -> std::io::Result<String> {
    let mut tls = Tls::new(&pki.options(name, "ca"));
    let address = Address::Ssl { host: "127.0.0.1".into(), port };
    let connector = tls.connector()?;
    let mut stream = BlockingStream::connect(&address, Some(&connector), Some(PATIENCE))?;
    stream.set_timeout(Some(PATIENCE));
    let request = json!({"id":1,"method":"transact","params":["D", operation]});
    stream.write_all(request.to_string().as_bytes())?;
    stream.flush()?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
        if serde_json::from_slice::<Value>(&answer).is_ok() {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
    }
}

/// What a role of the relay's allows is judged by the name in the certificate that the relay was shown, and what it
/// allows is written at the source.
fn by_certificate(source: Program) {
    let (Some(pki), Some(packaged)) =
        (Pki::usual(&format!("relay-{source:?}")), reference("ovsdb-server"))
    else {
        println!("skipped: openssl or the packaged server is not installed");
        return;
    };
    pki.authority("foreign");
    pki.signed("stranger", "foreign", "client", Shape { extensions: LEAF, ..Shape::default() });
    let scratch = Scratch::new();
    scratch.write("d.ovsschema", &schema());
    let created = scratch.run(WEIR, &["tool", "create", "d.db", "d.ovsschema"]);
    assert!(created.status.success(), "{}", err(&created));
    let mut children = Children(Vec::new());
    let mut start = |program: PathBuf, name: &str, certificate: &str, args: &[String]| {
        let mut command: Command = scratch.command(program);
        command.args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"]);
        command.arg(format!("--log-file={}", scratch.text(&format!("{name}.log"))));
        command.arg(format!("--unixctl={}", scratch.text(&format!("{name}.ctl"))));
        command.args(pki.arguments(certificate)).args(args).stdout(Stdio::null());
        children.0.push(command.spawn().expect("the server starts"));
        port(&scratch.path(&format!("{name}.log")))
    };
    let socket = scratch.path("source.sock");
    let program = match source {
        Weir => scratch.link("ovsdb-server"),
        Packaged => packaged,
    };
    let remotes =
        [format!("--remote=punix:{}", socket.display()), "--remote=pssl:0:127.0.0.1".into()];
    let source_port =
        start(program, "source", "server", &[&remotes[..], &["d.db".into()]].concat());
    // The packaged server takes its remotes in no certain order, and has said the port of one.
    eventually("the source listens", || listens(&socket));
    let mut admin = Client::connect(&socket).expect("the source listens");
    let rules = json!(["D",
        {"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"table":"Chassis",
            "authorization":"name","insert_delete":true,"update":["set",["note"]]}},
        {"op":"insert","table":"RBAC_Role","row":{"name":"controller","permissions":
            ["map",[["Chassis",["named-uuid","p"]]]]}},
        {"op":"insert","table":"Chassis","row":{"name":"other"}}]);
    let reply = admin.call(&json!({"id":1,"method":"transact","params":rules}).to_string());
    assert!(!reply.contains("details"), "{reply}");
    let config = json!({
        "remotes": {"pssl:0:127.0.0.1": {"role": "controller"}},
        "databases": {"D": {"service-model": "relay",
            "source": {format!("ssl:127.0.0.1:{source_port}"): null}}}});
    scratch.write("relay.json", &config.to_string());
    let config = format!("--config-file={}", scratch.text("relay.json"));
    let relay_port = start(scratch.link("ovsdb-server"), "relay", "client", &[config]);
    let insert = |name: &str| json!({"op":"insert","table":"Chassis","row":{"name":name}});
    let update = |name: &str, column: &str| json!({"op":"update","table":"Chassis","where":[["name","==",name]],"row":{column:"x"}});
    // The relay has the database, and its client may do with its own row what the role says.
    eventually("the relay follows its source", || {
        ask(&pki, "client", relay_port, &insert("client")).is_ok_and(|reply| reply.contains("uuid"))
    });
    for (operation, is_allowed) in [
        (update("client", "note"), true),
        (insert("other"), false),
        (update("other", "note"), false),
        (update("client", "owner"), false),
        (json!({"op":"insert","table":"Global","row":{}}), false),
        (json!({"op":"delete","table":"Chassis","where":[["name","==","other"]]}), false),
        (json!({"op":"select","table":"Chassis","where":[]}), true),
    ] {
        let reply = ask(&pki, "client", relay_port, &operation).expect("a reply");
        let is_refused = reply.contains("permission error");
        assert_eq!(!is_refused, is_allowed, "{operation}: {reply}");
        assert!(is_refused || !reply.contains("details"), "{operation}: {reply}");
    }
    // At the source there is no role, and the certificate that it sees is the relay's.
    let reply = ask(&pki, "client", source_port, &insert("third")).expect("a reply");
    assert!(reply.contains("uuid"), "{reply}");
    assert!(ask(&pki, "stranger", relay_port, &insert("client")).is_err());
    let select =
        json!({"op":"select","table":"Chassis","where":[],"columns":["name","note","owner"]});
    let select = json!({"id":2,"method":"transact","params":["D", select]}).to_string();
    let reply: Value = serde_json::from_str(&admin.call(&select)).expect("JSON");
    let columns = |row: &Value| {
        ["name", "note", "owner"].map(|column| row[column].as_str().unwrap_or_default().to_owned())
    };
    let mut rows: Vec<[String; 3]> =
        reply["result"][0]["rows"].as_array().expect("rows").iter().map(columns).collect();
    rows.sort();
    assert_eq!(rows, [["client", "x", ""], ["other", "", ""], ["third", "", ""]]);
}

#[test]
fn a_certificate_counts_at_the_relay_of_a_source_of_ours() {
    by_certificate(Weir);
}

#[test]
fn a_certificate_counts_at_the_relay_of_a_packaged_source() {
    by_certificate(Packaged);
}
