//! ovsdb-client and a server that misbehaves: beside the reference's client, the same words and
//! statuses. The server is a script of replies.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use crate::support::{Scratch, err, out, reference};
use weir_json::{Framer, Value};

/// A command line, and what the server says to its requests, in order; `$ID` is the id of the
/// request. Behind the last the server hangs up.
type Case = (&'static [&'static str], &'static [&'static str]);

/// Says nothing.
const CLOSE: &str = "";
const DBS: &str = r#"{"id":$ID,"result":["D"],"error":null}"#;
const SCHEMA: &str = r#"{"id":$ID,"error":null,"result":{"name":"D","version":"1.0.0","tables":{"T":{"columns":{"a":{"type":"integer"},"s":{"type":"string"}}}}}}"#;

const LIST: &[&str] = &["list-dbs"];
const DUMP: &[&str] = &["dump", "D", "T"];
const TXN: &[&str] = &["transact", r#"["D"]"#];
const MONITOR: &[&str] = &["monitor", "D", "T"];
const COND: &[&str] = &["monitor-cond", "D", "[true]", "T"];
const SINCE: &[&str] = &["monitor-cond-since", "D", "[true]", "T"];

const CASES: &[Case] = &[
    // Nobody answers, or not with what was asked for.
    (LIST, &[CLOSE]),
    (LIST, &[r#"{"id":$ID,"result":["b","a"],"error":null}"#]),
    (LIST, &[r#"{"id":$ID,"result":[],"error":null}"#]),
    (LIST, &[r#"{"id":$ID,"result":null,"error":"no"}"#]),
    (LIST, &[r#"{"id":$ID,"result":null,"error":{"error":"x","details":"y"}}"#]),
    (LIST, &[r#"{"id":$ID,"error":"no"}"#]),
    (LIST, &[r#"{"id":77,"result":["wrong"],"error":null}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":"x","result":["wrong"],"error":null}"#]),
    (LIST, &[r#"{"id":null,"method":"update","params":[]}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":$ID,"result":["#]),
    (LIST, &["["]),
    (&["get-schema"], &[CLOSE]),
    (&["get-schema"], &[DBS, CLOSE]),
    (&["get-schema"], &[DBS, SCHEMA]),
    (&["get-schema-version"], &[DBS, SCHEMA]),
    (&["get-schema-cksum"], &[DBS, SCHEMA]),
    (&["get-schema"], &[DBS, r#"{"id":$ID,"result":{},"error":null}"#]),
    (&["get-schema"], &[DBS, r#"{"id":$ID,"result":{"name":"D"},"error":null}"#]),
    (&["get-schema"], &[DBS, r#"{"id":$ID,"result":"x","error":null}"#]),
    (&["get-schema"], &[DBS, r#"{"id":$ID,"result":null,"error":"gone"}"#]),
    // Which database is meant.
    (&["get-schema"], &[r#"{"id":$ID,"result":[],"error":null}"#]),
    (&["get-schema"], &[r#"{"id":$ID,"result":["A","B"],"error":null}"#]),
    (&["get-schema"], &[r#"{"id":$ID,"result":["_A","_B"],"error":null}"#]),
    (&["get-schema-version"], &[r#"{"id":$ID,"result":["_Server","A"],"error":null}"#, SCHEMA]),
    (
        &["get-schema-version"],
        &[r#"{"id":$ID,"result":["A","Open_vSwitch"],"error":null}"#, SCHEMA],
    ),
    // Rows.
    (DUMP, &[DBS, SCHEMA, CLOSE]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[]}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[{"a":1,"s":"x"}]}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":7}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"error":"x"}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":"x","error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":null,"error":"no"}"#]),
    // Transactions.
    (TXN, &[CLOSE]),
    (TXN, &[r#"{"id":$ID,"result":[],"error":null}"#]),
    (TXN, &[r#"{"id":$ID,"result":[null,{"error":"x"}],"error":null}"#]),
    (TXN, &[r#"{"id":$ID,"result":{"b":1,"a":2},"error":null}"#]),
    (TXN, &[r#"{"id":$ID,"result":null,"error":"canceled"}"#]),
    (TXN, &[r#"{"id":$ID,"result":null,"error":{"b":1,"a":[2]}}"#]),
    (TXN, &[r#"{"id":null,"method":"echo","params":[1]}{"id":$ID,"result":[],"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[{"error":"aborted"}],"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[{},{"error":"aborted"}],"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[],"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[{"error":"other"}],"error":null}"#]),
    // Monitors.
    (MONITOR, &[DBS, SCHEMA, CLOSE]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{},"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"Other":{}},"error":null}"#]),
    (
        MONITOR,
        &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":{"new":{"a":1,"s":"x"}}}},"error":null}"#],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[null,{"T":{"u":{"old":{"a":1},"new":{"a":2,"s":"y"}}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":["other",{"T":{"u":{"old":{"a":1,"s":"x"}}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"monitor_canceled","params":["D"]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"locked","params":["l"]}"#,
        ],
    ),
    (
        COND,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{"T":{"u":{"initial":{"a":1}}}},"error":null}{"id":null,"method":"update2","params":[null,{"T":{"u":{"modify":{"a":2}}}}]}{"id":null,"method":"update2","params":[null,{"T":{"v":{"delete":null}}}]}{"id":null,"method":"update2","params":[null,{"T":{"w":{"insert":{"s":"z"}}}}]}"#,
        ],
    ),
    (
        SINCE,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":[true,"u",{"T":{"u":{"insert":{"a":1}}}}],"error":null}{"id":null,"method":"update3","params":[null,"w",{"T":{"u":{"delete":null}}}]}"#,
        ],
    ),
    // Locks.
    (
        &["lock", "l"],
        &[
            r#"{"id":$ID,"result":{"locked":true},"error":null}{"id":null,"method":"stolen","params":["l"]}"#,
        ],
    ),
    (
        &["lock", "l"],
        &[
            r#"{"id":$ID,"result":{"locked":false},"error":null}{"id":null,"method":"locked","params":["l"]}"#,
        ],
    ),
    (&["lock", "l"], &[CLOSE]),
];

/// What stands where something else should.
const WRONG: &[&str] = &["null", "7", r#""x""#, "[]", "{}", "[null]", r#"[{}]"#, r#"{"a":1}"#];

const BACKUP: &[&str] = &["backup"];
const RESTORE: &[&str] = &["restore"];
const WAIT: &[&str] = &["wait", "D", "added"];
const LOCK: &[&str] = &["lock", "l"];

/// Where each of [`WRONG`] stands in its turn, as `$X`.
const PLACES: &[Case] = &[
    (LIST, &[r#"{"id":$ID,"result":$X,"error":null}"#]),
    (LIST, &[r#"{"id":$ID,"result":[$X],"error":null}"#]),
    (LIST, &[r#"{"id":$ID,"result":null,"error":$X}"#]),
    (LIST, &[r#"{"id":$ID,"result":["D"],"error":null,"x":$X}"#]),
    (LIST, &[r#"{"id":null,"method":$X,"params":[]}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":$X,"method":"echo","params":[]}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":3,"method":"echo","params":$X}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":$X,"result":["no"],"error":null}{"id":$ID,"result":["D"],"error":null}"#]),
    (LIST, &[r#"{"id":7,"result":$X,"error":$X}{"id":$ID,"result":["D"],"error":null}"#]),
    (&["get-schema"], &[DBS, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (&["list-columns"], &[DBS, r#"{"id":$ID,"result":{"name":"D","tables":$X},"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[$X],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":$X}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[$X]}],"error":null}"#]),
    (DUMP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[]},$X],"error":null}"#]),
    (
        &["dump", "D", "T", "a"],
        &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[{"a":1},{"a":$X}]}],"error":null}"#],
    ),
    (
        &["dump", "D", "T", "s"],
        &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[{"s":$X}]}],"error":null}"#],
    ),
    (
        &["dump", "D", "T", "_uuid"],
        &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[{"_uuid":$X}]}],"error":null}"#],
    ),
    (BACKUP, &[DBS, SCHEMA, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (BACKUP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[$X],"error":null}"#]),
    (BACKUP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":$X}],"error":null}"#]),
    (BACKUP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[$X]}],"error":null}"#]),
    (BACKUP, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"rows":[{"_uuid":$X}]}],"error":null}"#]),
    (RESTORE, &[DBS, SCHEMA, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (RESTORE, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{},$X],"error":null}"#]),
    (RESTORE, &[DBS, SCHEMA, r#"{"id":$ID,"result":[{"error":$X}],"error":null}"#]),
    (RESTORE, &[DBS, SCHEMA, r#"{"id":$ID,"result":null,"error":$X}"#]),
    (WAIT, &[r#"{"id":$ID,"result":[$X],"error":null}"#]),
    (TXN, &[r#"{"id":$ID,"result":$X,"error":null}"#]),
    (TXN, &[r#"{"id":$ID,"result":null,"error":$X}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":$X,"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[$X],"error":null}"#]),
    (&["query", r#"["D"]"#], &[r#"{"id":$ID,"result":[{"error":$X}],"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":$X},"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":$X}},"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":{"new":$X}}},"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":{"old":$X}}},"error":null}"#]),
    (MONITOR, &[DBS, SCHEMA, r#"{"id":null,"method":"update","params":$X}"#]),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[null,$X]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[$X,{"T":{"u":{"new":{"a":1}}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[null,{"T":{"u":{"old":$X,"new":{"a":2}}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[null,{"T":{"u":{"old":{"a":2},"new":$X}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update","params":[null,{"T":{"u":{"old":$X}}}]}"#,
        ],
    ),
    (
        MONITOR,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"monitor_canceled","params":$X}"#,
        ],
    ),
    (COND, &[DBS, SCHEMA, r#"{"id":$ID,"result":$X,"error":null}"#]),
    (COND, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":$X},"error":null}"#]),
    (COND, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":$X}},"error":null}"#]),
    (COND, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":{"initial":$X}}},"error":null}"#]),
    (COND, &[DBS, SCHEMA, r#"{"id":$ID,"result":{"T":{"u":{"insert":$X}}},"error":null}"#]),
    (
        COND,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{"T":{"u":{"modify":$X,"insert":{"a":1}}}},"error":null}"#,
        ],
    ),
    (
        COND,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{"T":{"u":{"delete":$X,"insert":{"a":1}}}},"error":null}"#,
        ],
    ),
    (
        COND,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"update2","params":[null,$X]}"#,
        ],
    ),
    (SINCE, &[DBS, SCHEMA, r#"{"id":$ID,"result":[true,"u",$X],"error":null}"#]),
    (
        SINCE,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":[true,"u",{}],"error":null}{"id":null,"method":"update3","params":[null,"v",$X]}"#,
        ],
    ),
    (
        SINCE,
        &[
            DBS,
            SCHEMA,
            r#"{"id":$ID,"result":[true,"u",{}],"error":null}{"id":null,"method":"update3","params":[$X,"v",{}]}"#,
        ],
    ),
    (LOCK, &[r#"{"id":$ID,"result":$X,"error":null}"#]),
    (LOCK, &[r#"{"id":$ID,"result":null,"error":$X}"#]),
    (LOCK, &[r#"{"id":$X,"result":{},"error":null}"#]),
    (LOCK, &[r#"{"id":$ID,"result":{},"error":null}{"id":null,"method":"locked","params":$X}"#]),
    (LOCK, &[r#"{"id":$ID,"result":{},"error":null}{"id":9,"method":"locked","params":[$X]}"#]),
    (LOCK, &[r#"{"id":null,"method":$X,"params":[]}"#]),
];

/// Plays a server for one run of the client.
fn play(listener: &UnixListener, steps: &[String]) {
    let Ok((mut stream, _)) = listener.accept() else { return };
    let mut steps = steps.iter();
    let (mut framer, mut message) = (Framer::new(), vec![]);
    let mut byte = [0];
    let mut schema = None;
    while let Ok(1) = stream.read(&mut byte) {
        message.push(byte[0]);
        if framer.feed(&byte).expect("JSON").is_none() {
            continue;
        }
        let request = Value::parse(&message).expect("JSON");
        message.clear();
        let method = request.get("method").and_then(Value::as_str).unwrap_or_default();
        let id = request.get("id").cloned().unwrap_or(Value::Null);
        match (method, schema) {
            // Told in passing by some commands; which of them is not what this is about.
            ("set_db_change_aware", _) => {
                say(&mut stream, r#"{"id":$ID,"result":{},"error":null}"#, &id);
                continue;
            }
            // The reference asks twice for the schema of a conditional monitor.
            ("get_schema", Some(text)) => {
                say(&mut stream, text, &id);
                continue;
            }
            _ => {}
        }
        let Some(text) = steps.next() else { return };
        say(&mut stream, text, &id);
        if method == "get_schema" {
            schema = Some(text);
        }
        if steps.len() == 0 {
            return;
        }
    }
}

fn say(stream: &mut UnixStream, text: &str, id: &Value) {
    let _ = stream.write_all(text.replace("$ID", &id.to_string()).as_bytes());
}

/// What a client says to a played server, and how it ends; standard input is a backup.
fn run(scratch: &Scratch, client: &Path, args: &[&str], steps: &[String]) -> (String, String) {
    let socket = scratch.path("db.sock");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket");
    let input = File::open(scratch.path("backup")).map_or_else(|_| Stdio::null(), Stdio::from);
    thread::scope(|scope| {
        let server = scope.spawn(move || play(&listener, steps));
        // The time limit only ends what hangs.
        let mut command = scratch.command(client);
        command.args(["-vconsole:off", "--timeout=60"]).args(args).stdin(input);
        let done = command.output().expect("the program starts");
        server.join().expect("the server ends");
        (out(&done), format!("{} {}", done.status, err(&done)))
    })
}

/// Runs both clients; what they do differently.
fn difference(scratch: &Scratch, theirs: &Path, args: &[&str], steps: &[String]) -> String {
    let ours = run(scratch, &scratch.link("ovsdb-client"), args, steps);
    let theirs = run(scratch, theirs, args, steps);
    // Dates, and keys in another order.
    let is_equal = if args == BACKUP {
        (ours.0.lines().count(), &ours.1) == (theirs.0.lines().count(), &theirs.1)
    } else {
        ours == theirs
    };
    if is_equal {
        return String::new();
    }
    format!("\n=== {args:?} {:?}\nours: {ours:?}\ntheirs: {theirs:?}", steps.last())
}

fn steps(steps: &[&str]) -> Vec<String> {
    steps.iter().map(|step| (*step).to_owned()).collect()
}

#[test]
fn a_server_that_misbehaves_is_told_of_alike() {
    let Some(theirs) = reference("ovsdb-client") else { return };
    let scratch = Scratch::new();
    let differences: String =
        CASES.iter().map(|case| difference(&scratch, &theirs, case.0, &steps(case.1))).collect();
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_reply_with_something_else_in_any_place_is_told_of_alike() {
    let Some(theirs) = reference("ovsdb-client") else { return };
    let scratch = Scratch::new();
    let row = r#"{"a":1,"s":"x","_uuid":["uuid","00000000-0000-0000-0000-000000000001"]}"#;
    let rows = format!(r#"{{"id":$ID,"result":[{{"rows":[{row}]}}],"error":null}}"#);
    let (backup, _) = run(&scratch, &theirs, BACKUP, &steps(&[DBS, SCHEMA, &rows]));
    scratch.write("backup", &backup);
    let mut differences = String::new();
    for (args, places) in PLACES {
        for wrong in WRONG {
            let steps: Vec<_> = places.iter().map(|step| step.replace("$X", wrong)).collect();
            differences += &difference(&scratch, &theirs, args, &steps);
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_monitor_that_is_refused_ends() {
    let scratch = Scratch::new();
    let client = scratch.link("ovsdb-client");
    for args in [MONITOR, COND, SINCE] {
        let refusal =
            r#"{"id":$ID,"result":null,"error":"no"}{"id":null,"method":"echo","params":[]}"#;
        let (printed, end) = run(&scratch, &client, args, &steps(&[DBS, SCHEMA, refusal]));
        let expected = "exit status: 1 ovsdb-client: transaction returned error: \"no\"\n";
        assert_eq!((&*printed, &*end), ("", expected), "{args:?}");
    }
}
