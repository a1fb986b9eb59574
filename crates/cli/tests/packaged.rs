//! Both sides' ovsdb-client and ovsdb-tool on every schema that Open vSwitch and OVN bring along, on
//! both sides' servers: the same words and statuses.

use std::path::PathBuf;

use crate::support::{Running, Scratch, err, eventually, listens, out, reference};
use weir_json::Value;

/// A packaged schema: its file and the name and tables in it.
struct Packaged {
    file: String,
    name: String,
    tables: Vec<String>,
}

fn packaged() -> Vec<Packaged> {
    let mut found = vec![];
    for folder in ["/usr/share/openvswitch", "/usr/share/ovn"] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|end| end != "ovsschema") {
                continue;
            }
            let schema = Value::parse(&std::fs::read(&path).expect("a schema")).expect("JSON");
            let name = schema.get("name").and_then(Value::as_str).expect("a name").to_owned();
            let Some(Value::Object(tables)) = schema.get("tables") else { panic!("{name}") };
            let tables = tables.keys().cloned().collect();
            found.push(Packaged { file: path.display().to_string(), name, tables });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// Lines of a log without their times.
fn without_times(text: &str) -> String {
    let line = |line: &str| line.split_once("Z|").map_or(line, |(_, rest)| rest).to_owned() + "\n";
    text.lines().map(line).collect()
}

fn lines_sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

struct Sides<'a> {
    scratch: &'a Scratch,
    programs: [PathBuf; 2],
}

impl Sides<'_> {
    fn agree(&self, args: &[&str], same: fn(&str) -> String) {
        let said = |program: &PathBuf| {
            let done = self.scratch.run(program, args);
            let text = format!("{}\n-- {}", out(&done), err(&done));
            format!("{:?}\n{}", done.status, same(&without_times(&text)))
        };
        let [ours, theirs] = [0, 1].map(|side| said(&self.programs[side]));
        assert_eq!(ours, theirs, "{args:?}");
    }
}

fn exactly(text: &str) -> String {
    text.to_owned()
}

/// The sides, and a scratch folder with a database of each schema, with what rows can be made of
/// nothing. `None` where the reference or its schemas are not installed.
fn databases(scratch: &Scratch) -> Option<(Vec<Packaged>, PathBuf)> {
    let tool = reference("ovsdb-tool")?;
    let all = packaged();
    if all.is_empty() {
        eprintln!("skipped: no schemas are installed");
        return None;
    }
    for Packaged { file, name, tables } in &all {
        let database = format!("{name}.db");
        let ours = scratch.link("ovsdb-tool");
        assert!(scratch.run(&ours, &["create", &database, file]).status.success(), "{name}");
        let mut rows = 0;
        for table in tables {
            let insert = format!(r#"["{name}",{{"op":"insert","table":"{table}","row":{{}}}}]"#);
            let done = scratch.run(&ours, &["transact", &database, &insert]);
            rows += usize::from(!out(&done).contains("error"));
        }
        assert!(rows > 0, "{name}: no row could be made");
    }
    Some((all, tool))
}

#[test]
fn files_of_every_schema() {
    let scratch = Scratch::new();
    let Some((all, tool)) = databases(&scratch) else { return };
    let sides = Sides { scratch: &scratch, programs: [scratch.link("ovsdb-tool"), tool] };
    for Packaged { file, name, .. } in &all {
        let database = format!("{name}.db");
        for question in ["schema-name", "schema-version", "schema-cksum"] {
            sides.agree(&[question, file], exactly);
        }
        for question in ["db-name", "db-version", "db-cksum", "db-is-standalone", "db-cid"] {
            sides.agree(&[question, &database], exactly);
        }
        for more in [&["show-log"][..], &["-m", "show-log"], &["-mm", "show-log"]] {
            sides.agree(&[more, &[database.as_str()]].concat(), lines_sorted);
        }
        for other in &all {
            sides.agree(&["needs-conversion", &database, &other.file], exactly);
        }
    }
}

#[test]
fn servers_of_every_schema() {
    for is_ours in [true, false] {
        let scratch = Scratch::new();
        let Some((all, _)) = databases(&scratch) else { return };
        let (Some(client), Some(server)) = (reference("ovsdb-client"), reference("ovsdb-server"))
        else {
            return;
        };
        let program = if is_ours { scratch.link("ovsdb-server") } else { server };
        let mut command = scratch.command(program);
        command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"]);
        let _server = Running::start(command.args(all.iter().map(|it| format!("{}.db", it.name))));
        eventually("the server listens", || listens(&scratch.path("server.ctl")));
        let programs = [scratch.link("ovsdb-client"), client];
        let sides = Sides { scratch: &scratch, programs };
        sides.agree(&["list-dbs"], exactly);
        sides.agree(&["dump"], exactly);
        for database in all.iter().map(|it| it.name.as_str()).chain(["_Server"]) {
            for args in [&["get-schema"][..], &["--pretty", "get-schema"], &["get-schema-cksum"]] {
                sides.agree(&[args, &[database]].concat(), exactly);
            }
            for format in ["table", "list", "html", "csv", "json"] {
                let dump = ["-f", format, "dump", database];
                sides.agree(&dump, exactly);
                sides.agree(&[&["--no-headings", "-d", "json"], &dump[..]].concat(), exactly);
                sides.agree(&[&["--pretty", "-d", "bare"], &dump[..]].concat(), exactly);
            }
            sides.agree(&["list-tables", database], lines_sorted);
            sides.agree(&["-f", "csv", "list-columns", database], lines_sorted);
        }
        for Packaged { file, name, tables } in &all {
            sides.agree(&["needs-conversion", file], exactly);
            let table = tables.last().expect("tables");
            sides.agree(&["dump", name, table, "_uuid"], exactly);
            sides.agree(&["--timestamp", "list-columns", name, table], lines_sorted);
            let select = format!(r#"["{name}",{{"op":"select","table":"{table}","where":[]}}]"#);
            sides.agree(&["query", &select], exactly);
            sides.agree(&["--pretty", "transact", &select], exactly);
        }
    }
}
