//! Keys of servers that share a database: members of a cluster and relays have each their own, which
//! outlive what becomes of the database; and disks that take no file beside the database's.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::group::{ALL, Group, Program, SCHEMA};
use crate::support::{Running, Scratch, WEIR, err, eventually, out};
use serde_json::{Value, json};
use weir_testkit::client::Client;

/// Enough rows for a server to think of keys by itself.
const ROWS: usize = 1_200;

/// Rows whose `n` is from `first` on, as the server has them.
fn rows(client: &mut Client, db: &str, first: usize) -> Vec<Value> {
    let select = json!({"op": "select", "table": "T", "where": [["n", ">=", first]],
        "columns": ["_uuid", "name", "n"], "sort": ["_uuid"]});
    let mut reply = client.transact(db, &[select]).expect("rows");
    let Value::Array(rows) = reply[0]["rows"].take() else { panic!("{reply}") };
    rows
}

/// How a server finds the rows whose `n` is from `first` on, and at how many it looks.
fn plan(client: &mut Client, db: &str, first: usize) -> (String, u64) {
    let select = json!({"op": "select", "table": "T", "where": [["n", ">=", first]]});
    let reply = client.request("weir_explain", &json!([db, select])).expect("a plan");
    let step = &reply["result"][0];
    let looked_at = step["looked_at"].as_u64().unwrap_or_else(|| panic!("{reply}"));
    (step["plan"].as_str().expect("a plan").to_owned(), looked_at)
}

fn fill(client: &mut Client, db: &str, rows: std::ops::Range<usize>) {
    let insert = |n: usize| json!({"op": "insert", "table": "T", "row": {"name": "x", "n": n}});
    let operations: Vec<Value> = rows.map(insert).collect();
    client.transact(db, &operations).expect("the rows");
}

/// Column, kind, and who wants it, of all keys in a list.
fn shown(list: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[2..words.len() - 4].join(" ")
    };
    list.lines().skip(1).map(line).collect()
}

impl Group {
    fn command(&self, at: usize, args: &[&str]) -> String {
        let done = self.appctl(at, args);
        assert!(done.status.success(), "member {at}, {args:?}: {}", err(&done));
        out(&done)
    }

    fn keys(&self, at: usize) -> Vec<String> {
        let list = || self.command(at, &["index/list", &self.db]);
        eventually("keys are built", || !list().contains("building"));
        shown(&list())
    }

    /// Waits until a member has so many rows from `first` on, and finds them by its key, as another
    /// one does by looking at all.
    fn check(&self, by_key: usize, by_scan: usize, first: usize, wanted: usize) {
        let of = |at: usize| rows(&mut self.client(at), &self.db, first);
        eventually("the member has the rows", || of(by_key).len() == wanted);
        assert_eq!(of(by_key), of(by_scan));
        let (way, looked_at) = plan(&mut self.client(by_key), &self.db, first);
        assert_eq!((way.as_str(), looked_at), ("alternate", wanted as u64));
        let (way, looked_at) = plan(&mut self.client(by_scan), &self.db, first);
        assert!(way == "linear" && looked_at >= ROWS as u64, "{way}, {looked_at}");
    }
}

#[test]
fn members_have_each_their_own_keys_whatever_becomes_of_the_database() {
    let Some(mut trio) = Group::weir(SCHEMA) else { return };
    trio.settle(&ALL);
    fill(&mut trio.client(0), &trio.db, 0..ROWS);
    for at in [0, 1] {
        trio.command(at, &["index/add", &trio.db, "T", "n", "asc"]);
    }
    let declared = ["n ordered declared, asc"];
    assert_eq!([trio.keys(0), trio.keys(1)], [declared, declared]);
    assert!(trio.keys(2).is_empty());
    [0, 1].into_iter().for_each(|at| trio.check(at, 2, ROWS - 5, 5));

    // A conversion declares where somebody asked for it, and takes nothing away.
    let mut schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    schema["version"] = json!("2.0.0");
    schema["tables"]["T"]["columns"]["name"]["alternate_key"] = json!(true);
    let mut client = trio.client(1);
    client.request("set_db_change_aware", &json!([true])).expect("a reply");
    let converted = client.request("convert", &json!([trio.db, schema])).expect("a reply");
    assert_eq!(converted["result"], json!({}), "{converted}");
    let both = ["n ordered declared, asc", "name hash declared"];
    assert_eq!(trio.keys(1), both);
    assert_eq!(trio.keys(0), declared);
    assert!(trio.keys(2).is_empty());
    [0, 1].into_iter().for_each(|at| trio.check(at, 2, ROWS - 5, 5));

    // A member is away while rows come and go, and the others forget how: it gets a snapshot.
    trio.kill(0);
    trio.settle(&[1, 2]);
    let delete = json!({"op": "delete", "table": "T", "where": [["n", ">=", ROWS - 2]]});
    trio.client(2).transact(&trio.db, &[delete]).expect("rows go");
    fill(&mut trio.client(2), &trio.db, ROWS..ROWS + 4);
    for at in [1, 2] {
        trio.command(at, &["ovsdb-server/compact", &trio.db]);
    }
    trio.start(0, Program::Weir);
    trio.settle(&ALL);
    trio.check(0, 2, ROWS - 5, 7);
    assert!(trio.log(0).contains("receiving snapshot from server"), "{}", trio.log(0));
    assert_eq!(trio.keys(0), declared);

    // All start again.
    ALL.into_iter().for_each(|at| trio.kill(at));
    trio.start_all(Program::Weir);
    trio.settle(&ALL);
    [0, 1].into_iter().for_each(|at| trio.check(at, 2, ROWS - 5, 7));
    assert_eq!(trio.keys(1), both);
    trio.command(1, &["index/drop", &trio.db, "T", "n"]);
    assert_eq!(trio.keys(1), ["name hash declared"]);
    assert_eq!(trio.keys(0), declared);

    // The third one counts and says what it does without, until it helps itself.
    let counted = |at, name| trio.command(at, &["coverage/read-counter", name]).trim() != "0";
    assert!(counted(0, "query_alternate") && counted(2, "query_linear"));
    assert!(!counted(2, "query_alternate"));
    trio.command(2, &["weir/slow-query-rows", "1000"]);
    let mut asks = trio.client(2);
    eventually("the member has a key", || {
        assert_eq!(rows(&mut asks, &trio.db, ROWS - 5).len(), 7);
        trio.keys(2) == ["n ordered server"]
    });
    for line in [
        "slow query: operation 1 looked at 1202 rows of table T (linear) for 7; ordered key on column n",
        "building an ordered key on column n of table T: for want of it",
    ] {
        assert!(trio.log(2).contains(line), "{}", trio.log(2));
    }
    let (way, looked_at) = plan(&mut asks, &trio.db, ROWS - 5);
    assert_eq!((way.as_str(), looked_at), ("alternate", 7));
}

/// A server in a folder, and its socket there.
fn serve(scratch: &Scratch, name: &str, database: &str) -> Running {
    let mut command: Command = scratch.command(WEIR);
    command
        .args(["server", "-vconsole:off"])
        .args([format!("--remote=punix:{name}.sock"), format!("--unixctl={name}.ctl")])
        .arg(format!("--log-file={name}.log"))
        .arg(database);
    let server = Running::start(&mut command);
    let socket = scratch.path(&format!("{name}.sock"));
    eventually("the server listens", || Client::connect(&socket).is_ok());
    server
}

fn admin(scratch: &Scratch, name: &str, args: &[&str]) -> String {
    let ctl = scratch.text(&format!("{name}.ctl"));
    let told = scratch.run(WEIR, &[&["appctl", "-t", &ctl], args].concat());
    assert!(told.status.success(), "{args:?}: {}", err(&told));
    out(&told)
}

fn client(scratch: &Scratch, name: &str) -> Client {
    Client::connect(&scratch.path(&format!("{name}.sock"))).expect("the server listens")
}

fn create(scratch: &Scratch) {
    scratch.write("odd.ovsschema", SCHEMA);
    let made = scratch.run(WEIR, &["tool", "create", "odd.db", "odd.ovsschema"]);
    assert!(made.status.success(), "{}", err(&made));
}

#[test]
fn a_relay_helps_itself_to_keys_by_what_it_is_asked() {
    let scratch = Scratch::new();
    create(&scratch);
    let _source = serve(&scratch, "source", "odd.db");
    let relay = format!("relay:Odd:unix:{}", scratch.text("source.sock"));
    let _relay = serve(&scratch, "relay", &relay);
    fill(&mut client(&scratch, "source"), "Odd", 0..ROWS);
    let mut asks = client(&scratch, "relay");
    eventually("the relay has all rows", || rows(&mut asks, "Odd", 0).len() == ROWS);
    assert_eq!(plan(&mut asks, "Odd", ROWS - 3), ("linear".to_owned(), ROWS as u64));
    let keys = |name: &str| shown(&admin(&scratch, name, &["index/list", "Odd"]));
    eventually("the relay has a key", || {
        assert_eq!(rows(&mut asks, "Odd", ROWS - 3).len(), 3);
        keys("relay") == ["n ordered server"]
    });
    eventually("the key serves", || plan(&mut asks, "Odd", ROWS - 3).0 == "alternate");
    // What the source is told goes to the relay's key.
    fill(&mut client(&scratch, "source"), "Odd", ROWS..ROWS + 2);
    eventually("the relay has what is new", || rows(&mut asks, "Odd", ROWS - 3).len() == 5);
    assert_eq!(plan(&mut asks, "Odd", ROWS - 3), ("alternate".to_owned(), 5));
    assert!(keys("source").is_empty());
    assert_eq!(plan(&mut client(&scratch, "source"), "Odd", ROWS - 3).0, "linear");
    let log = std::fs::read_to_string(scratch.path("relay.log")).expect("a log");
    assert!(
        log.contains("building an ordered key on column n of table T: for want of it"),
        "{log}"
    );
}

/// Serves `disk/odd.db` with a command to which its arguments are added, and declares keys that
/// cannot be kept there.
fn is_said_of_a_disk(scratch: &Scratch, mut command: Command, why: &str) {
    command.args(["server", "-vconsole:off", "--remote=punix:odd.sock", "--unixctl=odd.ctl"]);
    let server = Running::start(command.args(["--log-file=odd.log", "disk/odd.db"]));
    eventually("the server listens", || Client::connect(&scratch.path("odd.sock")).is_ok());
    for column in ["n", "name"] {
        // The command is answered, and the key is there as long as the process.
        assert_eq!(admin(scratch, "odd", &["index/add", "Odd", "T", column]), "");
    }
    let list = admin(scratch, "odd", &["index/list", "Odd"]);
    assert_eq!(shown(&list), ["n hash declared", "name hash declared"]);
    let log = || std::fs::read_to_string(scratch.path("odd.log")).expect("a log");
    let line =
        format!("disk/odd.db: which keys are declared could not be written beside the file ({why}");
    eventually("the log says so", || log().matches(&line).count() == 2);
    // The database goes on being served.
    assert!(rows(&mut client(scratch, "odd"), "Odd", 0).is_empty());
    assert!(!log().contains("|ERR|") && !log().contains("|EMER|"), "{}", log());
    // Nothing is left of what was tried, in the folder as the server sees it.
    let folder = format!("/proc/{}/cwd/disk", server.pid());
    let names = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| name.contains("keys")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A command that runs in namespaces of its own; none, and said so, where there are no such.
fn unshared(scratch: &Scratch, args: &[&str]) -> Option<Command> {
    let tried = scratch.command("unshare").args(args).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: no namespace may be created here");
        return None;
    }
    let mut command = scratch.command("unshare");
    command.args(args);
    Some(command)
}

#[test]
fn a_disk_without_room_takes_no_keys_and_the_log_says_so() {
    let scratch = Scratch::new();
    create(&scratch);
    std::fs::create_dir(scratch.path("disk")).expect("a folder");
    let options = ["--user", "--map-root-user", "--mount"];
    let Some(mut command) = unshared(&scratch, &options) else { return };
    // A disk that only the server sees.
    let disk = "mount -t tmpfs -o size=1M tmpfs disk && cp odd.db disk/ && \
        touch disk/.odd.db.~lock~ && { dd if=/dev/zero of=disk/ballast bs=1000 2>/dev/null; true; }";
    command.args(["sh", "-c", &format!(r#"{disk} && exec "{WEIR}" "$@""#), "sh"]);
    is_said_of_a_disk(&scratch, command, "No space left on device");
}

#[test]
fn a_folder_that_takes_no_files_takes_no_keys_and_the_log_says_so() {
    let scratch = Scratch::new();
    create(&scratch);
    let disk = scratch.path("disk");
    std::fs::create_dir(&disk).expect("a folder");
    std::fs::rename(scratch.path("odd.db"), disk.join("odd.db")).expect("one disk");
    std::fs::write(disk.join(".odd.db.~lock~"), "").expect("a lock file");
    let set = |mode| std::fs::set_permissions(&disk, Permissions::from_mode(mode));
    // Where root is not what it is here, its rights count.
    let Some(mut command) = unshared(&scratch, &["--user"]) else { return };
    set(0o555).expect("the owner may");
    command.arg(WEIR);
    is_said_of_a_disk(&scratch, command, "Permission denied");
    set(0o755).expect("the owner may");
}
