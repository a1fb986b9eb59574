//! Mistakes in a configuration file, as ovsdb-server tells them (`--config-file`; the installed
//! reference may be older than that option, so the texts stand here).

use crate::support::{Scratch, WEIR, err};

/// What the file holds, and what is said about it, `|` between lines; the start fails.
const MISTAKES: [(&str, &str); 15] = [
    ("[", "config: reading JSON failed (line 0, column 1, byte 1: unexpected end of input)"),
    (
        r#"{"remotes":1}"#,
        "config: 'remotes' is not a JSON object|config: failed to parse 'remotes'",
    ),
    (
        r#"{"remotes":{"punix:x":3}}"#,
        "punix:x: JSON-RPC options are not a JSON object or null|config: failed to parse 'remotes'",
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"x"}}}"#,
        r#"Unrecognized database service model: 'x'|syntax "{"service-model":"x"}": syntax error: Parsing database d.db failed: 'x' is not a valid service model|config: failed to parse 'databases'"#,
    ),
    (
        r#"{"databases":{"d.db":{"service-model":5}}}"#,
        r#"syntax "{"service-model":5}": syntax error: Parsing database d.db failed: Type mismatch for member 'service-model'.|config: failed to parse 'databases'"#,
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"relay"}}}"#,
        "Parsing database d.db failed: Required 'source' member is missing.|config: failed",
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"active-backup"}}}"#,
        "Parsing database d.db failed: Required 'backup' member is missing.|config: failed",
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"active-backup","backup":true}}}"#,
        "Parsing database d.db failed: Required 'source' member is missing.|config: failed",
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"standalone","backup":true}}}"#,
        "Parsing database d.db failed: Member 'backup' is present but not allowed here.|config:",
    ),
    (
        r#"{"databases":{"d.db":{"source":{}}}}"#,
        "Parsing database d.db failed: Member 'source' is present but not allowed here.|config:",
    ),
    (
        r#"{"databases":{"d.db":{"service-model":"clustered"}}}"#,
        "failed to open database 'd.db': ovsdb error: d.db: database is standalone and not \
         clustered|failed to configure databases",
    ),
    (
        r#"{"databases":{"c.db":{"service-model":"standalone"}}}"#,
        "failed to open database 'c.db': ovsdb error: c.db: database is clustered and not \
         standalone|failed to configure databases",
    ),
    (
        r#"{"databases":{"c.db":{"service-model":"active-backup","source":{"unix:x":null},"backup":false}}}"#,
        "failed to open database 'c.db': ovsdb error: c.db: database is clustered and not \
         active-backup|failed to configure databases",
    ),
    (
        r#"{"databases":{"no.db":null}}"#,
        "failed to open database 'no.db': I/O error: no.db: open failed (No such file or \
         directory)|failed to configure databases",
    ),
    (
        r#"{"remotes":{"db:D,X,y":{}},"databases":{"d.db":null}}"#,
        r#"failed to configure remotes: "db:D,X,y": no table named X"#,
    ),
];

/// A folder with a database, and what a start with this configuration says.
fn start(scratch: &Scratch, configuration: &str) -> (Option<i32>, String) {
    scratch.write("c.json", configuration);
    let args = ["--config-file=c.json", "--unixctl=none", "--run=true"];
    let started = scratch.run(scratch.link("ovsdb-server"), &args);
    (started.status.code(), err(&started))
}

fn folder() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("s", r#"{"name":"D","tables":{"T":{"columns":{"x":{"type":"string"}}}}}"#);
    let created = scratch.run(WEIR, &["tool", "create", "d.db", "s"]);
    assert!(created.status.success(), "{}", err(&created));
    let created = scratch.run(WEIR, &["tool", "create-cluster", "c.db", "s", "unix:x"]);
    assert!(created.status.success(), "{}", err(&created));
    scratch
}

#[test]
fn each_mistake_is_named_and_fatal() {
    let scratch = folder();
    for (configuration, expected) in MISTAKES {
        let (status, said) = start(&scratch, configuration);
        assert_eq!(status, Some(1), "{configuration}: {said}");
        let mut rest = said.as_str();
        for text in expected.split('|') {
            let found = rest.find(text);
            let at = found.unwrap_or_else(|| panic!("{configuration}\n{text}\nnot in\n{said}"));
            rest = &rest[at + text.len()..];
        }
        assert!(rest.ends_with("\novsdb-server: server configuration failed\n"), "{said}");
        let is_parsed = expected.contains("failed to open") || expected.contains("configure");
        let failed = format!("failed to load configuration from {}\n", scratch.text("c.json"));
        assert_eq!(rest.contains(&failed), !is_parsed, "{said}");
    }
}

#[test]
fn what_is_only_odd_is_a_warning() {
    let scratch = folder();
    let mismatch = "Parsing JSON-RPC options failed: Type mismatch for member 'inactivity-probe'.";
    for (configuration, warning) in [
        ("{}", None),
        (r#"{"remotes":null,"databases":null}"#, None),
        (r#"{"remotes":{"punix:x":null},"databases":{"d.db":null}}"#, None),
        (r#"{"remotes":{"punix:x":{"inactivity-probe":"a"}},"databases":{}}"#, Some(mismatch)),
    ] {
        let (status, said) = start(&scratch, configuration);
        assert_eq!(status, Some(0), "{configuration}: {said}");
        assert_eq!(said.contains("|WARN|"), warning.is_some(), "{said}");
        assert!(warning.is_none_or(|warning| said.contains(warning)), "{said}");
    }
}
