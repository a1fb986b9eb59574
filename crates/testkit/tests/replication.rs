//! Active-backup replication between servers of both makes: cut connections, killed servers,
//! changed roles, excluded tables, other schemas. What counts in the end: the rows are the same.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use serde_json::{Value, json};
use weir_testkit::client::{Client, Trouble};
use weir_testkit::dump::{Dump, table_names};
use weir_testkit::files;
use weir_testkit::generate::{Generator, Schema};
use weir_testkit::patience::eventually;
use weir_testkit::process::{Program, Scratch, Server, both, weir};
use weir_testkit::rng::Rng;

/// Connections of one history that are cut in their midst.
const CUTS: usize = 3;

/// A place to connect to that passes bytes on to another, until it hangs up.
struct Proxy {
    path: PathBuf,
    upstream: Arc<Mutex<PathBuf>>,
    /// How many more connections are cut in their midst.
    cuts: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Proxy {
    fn start(path: PathBuf, upstream: PathBuf, cuts: usize, seed: u64) -> Self {
        let listener = UnixListener::bind(&path).expect("a proxy's socket");
        let proxy = Self {
            path,
            upstream: Arc::new(Mutex::new(upstream)),
            cuts: Arc::new(AtomicUsize::new(cuts)),
            over: Arc::default(),
        };
        let (upstream, cuts) = (Arc::clone(&proxy.upstream), Arc::clone(&proxy.cuts));
        let over = Arc::clone(&proxy.over);
        spawn(move || {
            let mut rng = Rng::new(seed);
            for backup in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let target = upstream.lock().expect("the upstream").clone();
                let Ok(active) = UnixStream::connect(target) else { continue };
                let left = cuts.load(Ordering::SeqCst);
                cuts.store(left.saturating_sub(1), Ordering::SeqCst);
                // Sometimes within the dialogue, sometimes far behind it.
                let limit = if left == 0 { usize::MAX } else { rng.below(30_000) };
                pass(&backup, &active, usize::MAX);
                pass(&active, &backup, limit);
            }
        });
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        UnixStream::connect(&self.path).ok();
    }
}

/// Passes at most `limit` bytes on, in a thread of its own; then both sides end.
fn pass(from: &UnixStream, to: &UnixStream, limit: usize) {
    let (mut from, mut to) = (from.try_clone().expect("from"), to.try_clone().expect("to"));
    spawn(move || {
        let (mut buffer, mut left) = ([0; 4096], limit);
        while left > 0 {
            let Ok(count @ 1..) = from.read(&mut buffer) else { break };
            let count = count.min(left);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            left -= count;
        }
        from.shutdown(std::net::Shutdown::Both).ok();
        to.shutdown(std::net::Shutdown::Both).ok();
    });
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// All rows with their UUIDs, in one order; versions are each server's own.
fn content(server: &Server, db: &str, tables: &[String]) -> Result<Value, Trouble> {
    let dump = Dump::read(&mut server.connect()?, db, tables)?;
    let rows = dump.rows().map(|(table, uuid, row)| {
        let mut row = row.clone();
        row.retain(|column, _| !column.starts_with('_'));
        row.sort_keys();
        row.values_mut().for_each(sort_elements);
        (format!("{table} {uuid}"), Value::Object(row))
    });
    Ok(Value::Object(rows.collect()))
}

/// Elements of a set or map come in any order.
fn sort_elements(value: &mut Value) {
    if let Some([_, Value::Array(elements)]) = value.as_array_mut().map(Vec::as_mut_slice) {
        elements.sort_by_key(Value::to_string);
    }
}

/// Waits until the backup has what the active server has; how many rows that is.
fn same_rows(active: &Server, backup: &Server, db: &str, tables: &[String]) -> usize {
    let mut count = 0;
    eventually(|| {
        let wanted = content(active, db, tables).expect("the active server's rows");
        let found = content(backup, db, tables).map_err(|trouble| trouble.to_string())?;
        count = wanted.as_object().map_or(0, |rows| rows.len());
        let status = backup.admin("ovsdb-server/sync-status", &[]);
        let told = || format!("{status:?}\n{wanted}\n{found}\n{}", backup.log());
        if wanted == found { Ok(()) } else { Err(told()) }
    });
    count
}

/// A generated history on the active server, whose connection to the backup is cut and which is
/// killed meanwhile.
fn follows(active: &Program, backup: &Program, seed: u64) {
    let scratch = Scratch::new("follow");
    let mut rng = Rng::new(seed);
    let schema = Schema::generate(&mut rng);
    let tables = table_names(&schema);
    let paths = [scratch.file("active.db"), scratch.file("backup.db")];
    paths.iter().for_each(|path| files::create(path, &schema.json()).expect("a file"));
    let [ours, theirs] = paths;
    let mut server = Server::start(active, std::slice::from_ref(&ours)).expect("an active server");
    let proxy = Proxy::start(scratch.file("proxy.sock"), server.socket(), CUTS, seed);
    let from = format!("--sync-from={}", unix(&proxy.path));
    let follower = Server::start_with(backup, &[theirs], &[&from]).expect("a backup");
    let mut generator = Generator::new(schema.clone(), rng);
    let mut most = 0;
    for part in 0..3 {
        let mut session = server.connect().expect("a session");
        for _ in 0..60 {
            session.transact(&schema.name, &generator.transaction()).ok();
            let dump = Dump::read(&mut session, &schema.name, &tables).expect("a dump");
            most = most.max(dump.rows().count());
            generator.observe(dump);
        }
        if part == 1 {
            same_rows(&server, &follower, &schema.name, &tables);
        } else {
            server.kill();
            server = Server::start(active, std::slice::from_ref(&ours)).expect("it comes back");
            *proxy.upstream.lock().expect("the upstream") = server.socket();
        }
    }
    same_rows(&server, &follower, &schema.name, &tables);
    assert!(most > 10, "seed {seed}: there was hardly anything to follow");
    assert!(proxy.cuts.load(Ordering::SeqCst) < CUTS, "no connection was cut");
}

#[test]
fn weir_follows_the_reference() {
    let Some((reference, weir)) = both("weir_follows_the_reference") else { return };
    follows(&reference, &weir, 1);
}

#[test]
fn the_reference_follows_weir() {
    let Some((reference, weir)) = both("the_reference_follows_weir") else { return };
    follows(&weir, &reference, 10);
}

#[test]
fn weir_follows_weir() {
    follows(&weir(), &weir(), 3);
}

fn schema(version: &str, tables: &[&str]) -> Value {
    let table = |name: &&str| {
        let columns =
            json!({"x": {"type": "integer"}, "s": {"type": {"key": "string", "min": 0, "max": 5}}});
        ((*name).to_owned(), json!({"columns": columns}))
    };
    let tables: serde_json::Map<String, Value> = tables.iter().map(table).collect();
    json!({"name": "D", "version": version, "tables": tables})
}

fn names(tables: &[&str]) -> Vec<String> {
    tables.iter().map(|&table| table.to_owned()).collect()
}

/// A server on a new database of these tables.
fn serve(
    scratch: &Scratch,
    program: &Program,
    file: &str,
    tables: &[&str],
    options: &[&str],
) -> Server {
    let path = scratch.file(file);
    files::create(&path, &schema("1.0.0", tables)).expect("a file");
    Server::start_with(program, &[path], options).expect("a server")
}

fn insert(server: &Server, table: &str, x: i64) -> String {
    let mut session = server.connect().expect("a session");
    let ops = [json!({"op": "insert", "table": table, "row": {"x": x}})];
    session.transact("D", &ops).expect("an answer").to_string()
}

fn admin(server: &Server, command: &str, args: &[&str]) -> String {
    server.admin(&format!("ovsdb-server/{command}"), args).expect(command)
}

#[test]
fn roles_change_back_and_forth() {
    let mut programs = vec![(weir(), weir())];
    programs.extend(both("roles_change_back_and_forth"));
    for (a, b) in programs {
        let scratch = Scratch::new("roles");
        let mut servers =
            [serve(&scratch, &a, "a.db", &["T"], &[]), serve(&scratch, &b, "b.db", &["T"], &[])];
        for x in 0..4 {
            let [active, backup] = &servers;
            admin(backup, "set-active-ovsdb-server", &[&unix(&active.socket())]);
            assert_eq!(
                admin(backup, "get-active-ovsdb-server", &[]).trim(),
                unix(&active.socket())
            );
            admin(backup, "connect-active-ovsdb-server", &[]);
            assert!(!insert(active, "T", x).contains("error"));
            let rows = same_rows(active, backup, "D", &names(&["T"]));
            assert_eq!(rows, usize::try_from(x).expect("small") + 1);
            let refused = insert(backup, "T", -1);
            assert!(refused.contains("read only mode"), "{}: {refused}", backup.label());
            admin(backup, "disconnect-active-ovsdb-server", &[]);
            servers.reverse();
        }
    }
}

/// What `sync-status` says, without the lines that name databases, which the older one prints
/// elsewhere, and without the source's name.
fn status(server: &Server, source: &str) -> String {
    let text = admin(server, "sync-status", &[]).replace(source, "SOURCE");
    let lines = text.lines().filter(|line| !line.starts_with("database:") && !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// All states of a backup, as `sync-status` tells them.
fn states(program: &Program) -> Vec<String> {
    let scratch = Scratch::new("states");
    let active = serve(&scratch, &weir(), "active.db", &["T", "U"], &[]);
    let source = unix(&active.socket());
    let nowhere = unix(&scratch.file("nowhere"));
    let options = [format!("--sync-from={nowhere}"), "--sync-exclude-tables=D:U".to_owned()];
    let options = [options[0].as_str(), options[1].as_str(), "--active"];
    let backup = serve(&scratch, program, "backup.db", &["T", "U"], &options);
    let mut told = vec![status(&backup, &nowhere)];
    admin(&backup, "connect-active-ovsdb-server", &[]);
    told.push(status(&backup, &nowhere));
    admin(&backup, "disconnect-active-ovsdb-server", &[]);
    told.push(status(&backup, &nowhere));
    admin(&backup, "set-active-ovsdb-server", &[&source]);
    insert(&active, "T", 1);
    insert(&active, "U", 1);
    admin(&backup, "connect-active-ovsdb-server", &[]);
    same_rows(&active, &backup, "D", &names(&["T"]));
    eventually(|| {
        let status = status(&backup, &source);
        if status.contains("replicating") { Ok(()) } else { Err(status) }
    });
    told.push(status(&backup, &source));
    let rows = content(&backup, "D", &names(&["U"])).expect("rows");
    told.push(format!("excluded: {rows}"));
    told.push(admin(&backup, "get-sync-exclude-tables", &[]).trim().to_owned());
    admin(&backup, "set-sync-exclude-tables", &["D:T"]);
    same_rows(&active, &backup, "D", &names(&["U"]));
    told.push(admin(&backup, "get-sync-exclude-tables", &[]).trim().to_owned());
    admin(&backup, "set-active-ovsdb-server-probe-interval", &["7000"]);
    told
}

#[test]
fn states_of_a_backup_are_told_as_by_the_reference() {
    let ours = states(&weir());
    let expected = [
        "state: active",
        "state: backup\nconnecting: SOURCE",
        "state: active",
        "state: backup\nreplicating: SOURCE\nexclude: D:U",
        "excluded: {}",
        "D:U",
        "D:T",
    ];
    assert_eq!(ours, expected);
    let Some((reference, _)) = both("states_of_a_backup_are_told_as_by_the_reference") else {
        return;
    };
    assert_eq!(ours, states(&reference));
}

/// The message of each line of the log that has this text.
fn said(server: &Server, text: &str) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains(text));
    lines.filter_map(|line| Some(line.splitn(5, '|').nth(4)?.to_owned())).collect()
}

#[test]
fn another_schema_is_followed_if_it_fits() {
    let mut actives = vec![weir()];
    actives.extend(both("another_schema_is_followed_if_it_fits").map(|(reference, _)| reference));
    for program in actives {
        let scratch = Scratch::new("schemas");
        let active = serve(&scratch, &program, "active.db", &["T"], &[]);
        assert!(!insert(&active, "T", 5).contains("error"));
        let from = format!("--sync-from={}", unix(&active.socket()));
        let wide = serve(&scratch, &weir(), "wide.db", &["T", "U"], &[&from]);
        assert_eq!(same_rows(&active, &wide, "D", &names(&["T"])), 1);
        assert_eq!(said(&wide, "can be replicated"), ["D can be replicated."]);
        let narrow = serve(&scratch, &weir(), "narrow.db", &["U"], &[&from]);
        eventually(|| {
            let said = said(&narrow, "cannot be replicated");
            if said == ["D cannot be replicated."] { Ok(()) } else { Err(narrow.log()) }
        });
        eventually(|| {
            let status = admin(&narrow, "sync-status", &[]);
            if status.contains("state: active") { Ok(()) } else { Err(status) }
        });
        assert!(!insert(&narrow, "U", 1).contains("error"));
    }
}

#[test]
fn nobody_follows_himself() {
    let scratch = Scratch::new("self");
    let server = serve(&scratch, &weir(), "d.db", &["T"], &[]);
    admin(&server, "set-active-ovsdb-server", &[&unix(&server.socket())]);
    admin(&server, "connect-active-ovsdb-server", &[]);
    eventually(|| {
        let said = said(&server, "Self replicating is not allowed");
        if said.is_empty() { Err(server.log()) } else { Ok(()) }
    });
    assert!(server.log().contains("|ERR|"), "{}", server.log());
    assert!(!insert(&server, "T", 1).contains("error"));
}

#[test]
fn monitors_of_a_backup_see_each_transaction_of_the_active_server() {
    let scratch = Scratch::new("monitors");
    let active = serve(&scratch, &weir(), "active.db", &["T"], &[]);
    let from = format!("--sync-from={}", unix(&active.socket()));
    let backup = serve(&scratch, &weir(), "backup.db", &["T"], &[&from]);
    same_rows(&active, &backup, "D", &names(&["T"]));
    let mut watcher: Client = backup.connect().expect("a session");
    let params = json!(["D", "m", {"T": {"columns": ["x"]}}]);
    watcher.request("monitor", &params).expect("an answer");
    for x in 0..3 {
        insert(&active, "T", x);
        let update = watcher.next_message().expect("an update");
        let text = format!("{update:?}");
        assert!(text.contains("update") && text.contains('x'), "{text}");
    }
    assert_eq!(same_rows(&active, &backup, "D", &names(&["T"])), 3);
}
