//! ovsdb-client beside the reference's: the same command lines to the same servers, and what each
//! of the two says, byte for byte. Times are made equal first, and so is the order of what the
//! reference lists in hash order.

use std::process::{Command, Output, Stdio};

use crate::support::{self, Running, Scratch, WEIR, eventually, listens, out, reference};

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Weir,
    Reference,
}

/// A database with rows of every awkward kind, served.
struct Room {
    scratch: Scratch,
    _server: Running,
    reference: std::path::PathBuf,
}

const SCHEMA: &str = r#"{"name":"Odd","version":"1.2.3","cksum":"12 345","tables":{
    "Empty":{"columns":{"a":{"type":"integer"}}},
    "One":{"isRoot":true,"maxRows":7,"columns":{"s":{"type":"string"}}},
    "Thing":{"isRoot":true,"indexes":[["name"]],"columns":{
        "name":{"type":"string"},
        "real":{"type":"real"},
        "flag":{"type":{"key":"boolean","min":0}},
        "number":{"type":{"key":"integer","min":0,"max":1}},
        "numbers":{"type":{"key":"integer","min":0,"max":"unlimited"}},
        "words":{"type":{"key":"string","min":0,"max":"unlimited"}},
        "friend":{"type":{"key":{"type":"uuid","refTable":"Thing","refType":"weak"},"min":0}},
        "friends":{"type":{"key":{"type":"uuid","refTable":"Thing"},"min":0,"max":9}},
        "map":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
        "refs":{"type":{"key":"integer","value":{"type":"uuid","refTable":"One"},
                "min":0,"max":"unlimited"}},
        "seen":{"type":"integer","ephemeral":true}}}}}"#;

const ROWS: &str = r#"["Odd",
    {"op":"insert","table":"One","uuid-name":"one","row":{"s":"a,b\"c"}},
    {"op":"insert","table":"Thing","uuid-name":"first","row":{"name":"plain","real":0.5,
        "flag":true,"number":7,"numbers":["set",[10,9,-1]],"words":["set",["x y","a","true"]],
        "map":["map",[["k","v"],["b c","\"q\" \n\té"],["12345678-1234-1234-1234-123456789abc","u"]]],
        "refs":["map",[[2,["named-uuid","one"]],[1,["named-uuid","one"]]]],"seen":5}},
    {"op":"insert","table":"Thing","row":{"name":"","real":1e15,"friend":["named-uuid","first"],
        "friends":["set",[["named-uuid","first"]]],"words":"<a&b>"}},
    {"op":"insert","table":"Thing","row":{"name":"true","real":-1e-7,"words":"\u0001\u007f"}},
    {"op":"insert","table":"Thing","row":{"name":"0x","real":123456789012345678,
        "number":-9223372036854775808}},
    {"op":"insert","table":"Thing","row":{"name":"a-b.c_d"}},
    {"op":"insert","table":"Thing","row":{"name":"😀 and,comma"}}]"#;

impl Room {
    fn new(server: Server) -> Option<Self> {
        let reference_client = reference("ovsdb-client")?;
        let scratch = Scratch::new();
        scratch.write("odd.ovsschema", SCHEMA);
        let tool = scratch.link("ovsdb-tool");
        assert!(scratch.run(tool, &["create", "odd.db", "odd.ovsschema"]).status.success());
        let program = match server {
            Server::Weir => scratch.link("ovsdb-server"),
            Server::Reference => reference("ovsdb-server")?,
        };
        let mut command = scratch.command(program);
        command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off", "odd.db"]);
        let running = Running::start(&mut command);
        eventually("the server listens", || listens(&scratch.path("db.sock")));
        let room = Self { scratch, _server: running, reference: reference_client };
        let inserted = room.ours(&["transact", ROWS], None);
        assert!(out(&inserted).matches("uuid").count() > 6, "{}", out(&inserted));
        Some(room)
    }

    fn run(&self, mut command: Command, args: &[&str], input: Option<&str>) -> Output {
        command.args(args);
        if let Some(name) = input {
            let file = std::fs::File::open(self.scratch.path(name)).expect("the input");
            command.stdin(Stdio::from(file));
        }
        command.output().expect("the program starts")
    }

    fn ours(&self, args: &[&str], input: Option<&str>) -> Output {
        self.run(self.scratch.command(self.scratch.link("ovsdb-client")), args, input)
    }

    fn theirs(&self, args: &[&str], input: Option<&str>) -> Output {
        self.run(self.scratch.command(&self.reference), args, input)
    }

    /// Both programs say the same and end the same.
    fn agree(&self, args: &[&str], compare: fn(&str) -> String) {
        self.agree_with(args, args, compare);
    }

    fn agree_with(&self, args: &[&str], their_args: &[&str], compare: fn(&str) -> String) {
        let (ours, theirs) = (self.ours(args, None), self.theirs(their_args, None));
        let text = |output: &Output| {
            let status = std::os::unix::process::ExitStatusExt::into_raw(output.status);
            let said = format!("{}\n-- {}", out(output), support::err(output));
            format!("{status}\n{}", compare(&said))
        };
        assert_eq!(text(&ours), text(&theirs), "{args:?}");
    }
}

/// Nothing is made equal.
fn exactly(text: &str) -> String {
    text.to_owned()
}

/// Times of log lines are made equal.
fn without_times(text: &str) -> String {
    let time = |line: &str| match line.split_once("Z|0") {
        Some((_, rest)) => format!("TIME|0{rest}\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(time).collect()
}

/// The lines in any order: the reference's order is that of hashes.
fn lines_sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn both_servers(scenario: impl Fn(&Room)) {
    for server in [Server::Weir, Server::Reference] {
        let Some(room) = Room::new(server) else { return };
        scenario(&room);
    }
}

#[test]
fn dumps_agree_in_every_format() {
    both_servers(|room| {
        for format in ["table", "list", "html", "csv", "json"] {
            for data in ["string", "bare", "json"] {
                room.agree(&["-f", format, "-d", data, "dump", "Odd"], exactly);
            }
            let narrow = ["-f", format, "--no-headings", "--max-column-width=9", "dump", "Odd"];
            room.agree(&[&narrow[..], &["Thing", "name", "words", "map"]].concat(), exactly);
        }
        room.agree(&["--pretty", "-f", "json", "dump", "Thing", "_uuid", "_version"], exactly);
        room.agree(&["--bare", "dump", "Odd", "Thing", "numbers", "name"], exactly);
        room.agree(&["dump", "Odd", "Thing", "nope"], exactly);
        room.agree(&["dump", "Nope"], exactly);
    });
}

#[test]
fn questions_about_schemas_agree() {
    both_servers(|room| {
        for args in [
            &["list-dbs"][..],
            &["get-schema"],
            &["--pretty", "get-schema", "Odd"],
            &["get-schema-version", "unix:db.sock", "Odd"],
            &["get-schema-cksum"],
            &["get-schema", "_Server"],
            &["needs-conversion", "odd.ovsschema"],
        ] {
            room.agree(args, exactly);
        }
        room.agree(&["list-tables"], lines_sorted);
        room.agree(&["list-columns", "Odd", "Thing"], lines_sorted);
        room.agree(&["-f", "csv", "list-columns"], lines_sorted);
    });
}

#[test]
fn transactions_and_mistakes_agree() {
    both_servers(|room| {
        for args in [
            &["transact", r#"["Odd",{"op":"select","table":"One","where":[],"columns":["s"]}]"#][..],
            &["--pretty", "transact", r#"["Odd",{"op":"comment","comment":"x"}]"#],
            &["transact", r#"["Odd",{"op":"abort"}]"#],
            &["transact", r#"["Odd",1]"#],
            &["query", r#"["Odd",{"op":"delete","table":"Thing","where":[]}]"#],
            &["query", r#"["Odd",{"op":"abort"}]"#],
            &["query", r#"["Odd"]"#],
            &["transact", r#"["Nope"]"#],
            &["transact", "["],
            &["transact", "1"],
            &["transact", "[]"],
            &["transact", "{}"],
            &["transact", "[1]"],
            &["transact", "a", "b"],
            &["transact", "unix:db.sock", r#"["Odd"]"#, "c"],
            &[],
            &["frobnicate"],
            &["list-dbs", "too", "many"],
            &["list-dbs", "unix:/nowhere"],
            &["list-dbs", "foo:bar"],
            &["dump", "unix:db.sock,unix:db.sock"],
            &["-t", "0", "list-dbs"],
            &["-f", "odd", "list-dbs"],
            &["monitor", "Odd"],
            &["monitor", "Odd", "Nope"],
            &["monitor", "Odd", "Thing", "nope"],
            &["monitor", "Odd", "Thing", "!nope"],
            &["monitor", "Odd", "Thing", "name", "name"],
            &["monitor-cond", "Odd", "x", "Thing"],
            &["monitor-cond", "Odd", r#"[["nope","==",1]]"#, "Thing"],
            &["monitor-cond", "Odd", "[true]", "ALL"],
            &["wait", "Odd", "gone"],
            &["lock"],
            &["convert", "nowhere"],
            &["restore", "Odd"],
        ] {
            room.agree(args, exactly);
        }
        for args in [
            &["wait", "Odd", "connected"][..],
            &["wait", "Nope", "removed"],
            &["-vjsonrpc:console:dbg", "list-dbs"],
            &["-vjsonrpc:console:dbg", "transact", r#"["Odd",{"op":"comment","comment":"x"}]"#],
            &["list-dbs", "unix:nowhere,unix:nowhere"],
            &["dump", "unix:db.sock,unix:db.sock", "Odd", "One", "s"],
        ] {
            room.agree(args, without_times);
        }
        // Each its own: a server may hear of a lock's end after it is asked for it again.
        for method in ["lock", "steal"] {
            let [ours, theirs] = ["ours", "theirs"].map(|side| format!("{side}-{method}"));
            let args = |name| ["-t", "1", method, name];
            room.agree_with(&args(&ours), &args(&theirs), without_times);
        }
    });
}

#[test]
fn a_backup_of_one_program_is_restored_by_the_other() {
    both_servers(|room| {
        let shown = ["dump", "Odd", "Thing", "name", "real", "words", "map", "numbers"];
        let before = out(&room.ours(&shown, None));
        for (turn, backup_is_ours) in [(0, true), (1, false)] {
            let name = format!("backup{turn}");
            let saved = if backup_is_ours {
                room.ours(&["backup"], None)
            } else {
                room.theirs(&["backup"], None)
            };
            assert!(saved.status.success(), "{}", support::err(&saved));
            room.scratch.write(&name, &out(&saved));
            let emptied = r#"["Odd",{"op":"delete","table":"Thing","where":[]}]"#;
            assert_eq!(out(&room.ours(&["transact", emptied], None)), "[{\"count\":6}]\n");
            let restored = if backup_is_ours {
                room.theirs(&["restore"], Some(&name))
            } else {
                room.ours(&["restore"], Some(&name))
            };
            assert!(restored.status.success(), "{}", support::err(&restored));
            assert_eq!(out(&room.ours(&shown, None)), before);
        }
    });
}

/// Runs a monitor of each program while a transaction changes what they watch.
fn monitors(room: &Room, args: &[&str]) -> [String; 2] {
    let programs = [room.scratch.link("ovsdb-client"), room.reference.clone()];
    let mut running = programs.map(|program| {
        let mut command = room.scratch.command(program);
        command.args(["-vconsole:off"]).args(args);
        Running::start(&mut command)
    });
    for each in &mut running {
        each.line_with("initial");
    }
    for transaction in [
        r#"["Odd",{"op":"insert","table":"Thing","row":{"name":"new","numbers":["set",[1,2]]}}]"#,
        r#"["Odd",{"op":"mutate","table":"Thing","where":[["name","==","new"]],
            "mutations":[["numbers","insert",["set",[3]]],["numbers","delete",1]]}]"#,
        r#"["Odd",{"op":"update","table":"Thing","where":[["name","==","new"]],
            "row":{"words":["set",["b","a"]],"flag":false}}]"#,
        r#"["Odd",{"op":"delete","table":"Thing","where":[["name","==","new"]]}]"#,
    ] {
        assert!(room.ours(&["transact", transaction], None).status.success());
    }
    running.map(|mut each| {
        each.line_with("delete");
        each.seen().join("\n")
    })
}

#[test]
fn monitors_agree() {
    both_servers(|room| {
        let only = r#"[["name","==","plain"],["name","==","new"]]"#;
        for args in [
            &["monitor", "Odd", "Thing", "name,numbers,flag", "words"][..],
            &["-f", "csv", "monitor", "Odd", "Thing"],
            &["-f", "json", "monitor-cond", "Odd", only, "Thing", "name,numbers"],
            &["monitor-cond", "Odd", only, "Thing", "name,words,!modify"],
            &["-f", "list", "monitor", "Odd", "Thing", "name,words"],
        ] {
            let [ours, theirs] = monitors(room, args);
            // Rows of one message come in hash order from the reference.
            assert_eq!(lines_sorted(&ours), lines_sorted(&theirs), "{args:?}");
        }
    });
}

#[test]
fn the_shells_can_read_the_completions() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = scratch.run(WEIR, &["completions", shell]);
        for word in [
            "monitor-cond-since",
            "cluster-to-standalone",
            "vlog/reopen",
            "sync-from",
            "no-initial",
        ] {
            assert!(out(&script).contains(word), "{shell}: {word}");
        }
        let name = format!("completions.{shell}");
        scratch.write(&name, &out(&script));
        let mut command = scratch.command(shell);
        if let Ok(checked) = command.args(["-n", &name]).output() {
            assert!(checked.status.success(), "{shell}: {}", support::err(&checked));
        }
    }
    for program in ["ovsdb-server", "ovsdb-client", "ovsdb-tool", "ovs-appctl", "weir-status"] {
        let page = out(&scratch.run(WEIR, &["man", program]));
        let title = program.to_uppercase().replace('-', "\\-");
        assert!(page.starts_with(&format!(".TH {title} 1")), "{page}");
    }
    assert!(out(&scratch.run(WEIR, &["man", "status"])).contains("\n.B weir status\n"));
}

#[test]
fn bash_completes_what_was_typed() {
    let scratch = Scratch::new();
    scratch.write("a-file", "");
    scratch.write("completions", &out(&scratch.run(WEIR, &["completions", "bash"])));
    let script = "source ./completions; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                  [[ $1 == weir ]] && _weir || _weir_${1#ovsdb-}; echo ${COMPREPLY[@]}";
    for (typed, expected) in [
        (&["weir", "sta"][..], "status"),
        (&["weir", "status", ""], ""),
        (&["weir", "status", "--"], "--target= --json --watch --help"),
        (&["weir", "status", "-t", "a-"], "a-file"),
        (&["weir", "up", "--p"], "--port="),
        (&["weir", "up", "a"], "a-file"),
        (&["weir", "watch", "u"], "unix:"),
        (&["weir", "transact", "t"], "tcp:"),
        (&["weir", "call", "unix:x", "get_sc"], "get_schema"),
        (&["weir", "server", "a"], "a-file"),
        (&["weir", "man", "st"], "status"),
        (&["weir", "completions", "z"], "zsh"),
        (&["weir", "client", "list-d"], "list-dbs"),
        (&["ovsdb-tool", "compact", "a"], "a-file"),
        (&["ovsdb-client", "-f", "cs"], "csv"),
    ] {
        let done = scratch.run("bash", &[&["-c", script, "bash"], typed].concat());
        assert_eq!(out(&done).trim_end(), expected, "{typed:?}: {}", support::err(&done));
    }
}
