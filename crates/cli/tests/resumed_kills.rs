//! Clients that come back to a server that was killed, ran out of room, or may not write where it
//! would: what they are told is what has changed, or everything, and nothing in between.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::chance::Chance;
use crate::peer::{Client, Server, create, insert, transact};
use crate::replica::{self, Rows};
use crate::support::{Scratch, eventually};
use serde_json::{Value, json};

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

/// What followers ask for; nothing that no file keeps.
const REQUESTS: [&str; 3] = [
    r#"{"Port":{"columns":["name","text","tags"]}}"#,
    r#"{"Port":{"columns":["tags"],"where":[["tags","includes","a"]]}}"#,
    r#"{"Port":{"columns":["name"],"where":[["name","==","nobody"]]}}"#,
];

/// A client that comes back with what it knows.
struct Follower {
    requests: Value,
    last_id: String,
    rows: Rows,
    client: Option<Client>,
}

impl Follower {
    fn all() -> Vec<Self> {
        let new = |requests| Self {
            requests: serde_json::from_str(requests).expect("JSON"),
            last_id: ZERO.into(),
            rows: Rows::new(),
            client: None,
        };
        REQUESTS.into_iter().map(new).collect()
    }

    /// Asks for what has changed; whether the server knew since when.
    fn come_back(&mut self, server: &Server) -> bool {
        let mut client = server.client();
        let (found, id) = begin(&mut client, &self.requests, &self.last_id, &mut self.rows);
        self.last_id = id;
        self.client = Some(client);
        found
    }

    /// Takes what comes until the server is gone.
    fn follow(&mut self) {
        let mut client = self.client.take().expect("it has come back");
        while let Some(message) = client.receive() {
            let message: Value = serde_json::from_str(&message).expect("JSON");
            assert_eq!(message["method"], "update3", "{message}");
            self.take(&message["params"]);
        }
    }

    /// Takes what has come by the time that the server answers.
    fn catch_up(&mut self) {
        let client = self.client.as_mut().expect("it has come back");
        client.send(r#"{"id":"now","method":"echo","params":[]}"#).expect("it is there");
        loop {
            let message = self.client.as_mut().and_then(Client::receive).expect("a message");
            let message: Value = serde_json::from_str(&message).expect("JSON");
            if message["id"] == "now" {
                return;
            }
            self.take(&message["params"]);
        }
    }

    fn take(&mut self, params: &Value) {
        let told = replica::update(&mut self.rows, &params[2]);
        told.unwrap_or_else(|wrong| panic!("{wrong} in {params}"));
        self.last_id = params[1].as_str().expect("an id").to_owned();
    }

    /// The replica is what a newcomer gets.
    fn is_right(&mut self, server: &Server) {
        let mut fresh = Rows::new();
        let (found, _) = begin(&mut server.client(), &self.requests, ZERO, &mut fresh);
        assert!(!found);
        for rows in [&mut fresh, &mut self.rows] {
            rows.retain(|_, rows| !rows.is_empty());
        }
        assert_eq!(self.rows, fresh, "{}", self.requests);
    }
}

/// Begins a monitor by a client that knows `rows` as of an id; whether that was found, and the id.
fn begin(client: &mut Client, requests: &Value, known: &str, rows: &mut Rows) -> (bool, String) {
    let params = json!(["Net", "mon", requests, known]);
    let request = json!({"id": 1, "method": "monitor_cond_since", "params": params});
    let reply = client.call(&request.to_string());
    let reply: Value = serde_json::from_str(&reply).expect("JSON");
    assert_eq!(reply["error"], Value::Null, "{reply}");
    let found = reply["result"][0] == true;
    if !found {
        rows.clear();
    }
    let told = replica::update(rows, &reply["result"][2]);
    told.unwrap_or_else(|wrong| panic!("{wrong} in {reply}"));
    (found, reply["result"][1].as_str().expect("an id").to_owned())
}

/// A change of a port that cannot be applied twice without somebody's noticing.
fn change(chance: &mut Chance, writer: usize) -> String {
    let name = format!("p{writer}-{}", chance.below(10));
    let is = format!(r#""table":"Port","where":[["name","==","{name}"]]"#);
    let (tag, how) = (*chance.pick(&["a", "b", "c"]), *chance.pick(&["insert", "delete"]));
    match chance.below(4) {
        0 => format!(r#"{{"op":"delete",{is}}},{}"#, insert(&name, tag)),
        1 => format!(r#"{{"op":"delete",{is}}}"#),
        2 => {
            format!(r#"{{"op":"update",{is},"row":{{"text":"{}"}}}}"#, "x".repeat(chance.below(99)))
        }
        _ => format!(r#"{{"op":"mutate",{is},"mutations":[["tags","{how}","{tag}"]]}}"#),
    }
}

/// Where the side files of the database are.
fn side_files(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path("")).expect("the folder").flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.contains(".weir-history-")
    };
    entries.map(|entry| entry.path()).filter(is_one).collect()
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Lets writers write and the database be compacted again and again until the server, killed at
/// some moment, is gone; answers with how often it was compacted.
fn live_and_die(server: Server, scratch: &Scratch, followers: &mut [Follower], seed: u64) -> usize {
    let mut chance = Chance::new(seed);
    let (compactions, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (mut client, written, is_over) = (server.client(), &written, &is_over);
            let mut chance = Chance::new(seed * 100 + writer as u64);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    let request = transact(&change(&mut chance, writer));
                    if client.try_call(&request).is_none() {
                        return;
                    }
                    written.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let mut control = Client::connect(&scratch.path("ctl.sock")).expect("the admin socket");
        let compactions = &compactions;
        scope.spawn(move || {
            let compact = r#"{"id":0,"method":"ovsdb-server/compact","params":[]}"#;
            while control.try_call(compact).is_some() {
                compactions.fetch_add(1, Ordering::AcqRel);
            }
        });
        for follower in followers.iter_mut() {
            scope.spawn(|| follower.follow());
        }
        eventually("it is written and compacted", || {
            written.load(Ordering::Acquire) > 20 && compactions.load(Ordering::Acquire) > 0
        });
        std::thread::sleep(Duration::from_micros(chance.below(100_000) as u64));
        server.kill();
        is_over.store(true, Ordering::Release);
    });
    compactions.into_inner()
}

#[test]
fn whoever_comes_back_after_a_kill_is_told_what_has_changed() {
    let lives = number("WEIR_KILLS", 20);
    let seed = number("WEIR_KILLS_SEED", 1);
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let mut followers = Follower::all();
    let (mut compactions, mut found) = (0, 0);
    for life in 0..lives {
        println!("WEIR_KILLS_SEED={}", seed + life);
        let server = Server::start(&scratch);
        assert!(side_files(&scratch).len() <= 1, "{:?}", side_files(&scratch));
        for follower in &mut followers {
            let known = follower.last_id.clone();
            let is_found = follower.come_back(&server);
            follower.is_right(&server);
            // So little is written in a life that all of it is kept.
            assert_eq!(is_found, known != ZERO, "{} of {known}", follower.requests);
            found += u64::from(is_found);
        }
        compactions += live_and_die(server, &scratch, &mut followers, seed + life);
    }
    println!("{compactions} compactions");
    assert!(compactions as u64 >= lives && found == 3 * (lives - 1));
}

/// Changes one port so often that its changes are longer than the database.
fn write_much(server: &Server) {
    let mut client = server.client();
    client.transact(&insert("p", ""));
    for n in 0..60 {
        let text = format!("{n}").repeat(5_000);
        let row = format!(r#""row":{{"text":"{text}"}}"#);
        let reply =
            client.transact(&format!(r#"{{"op":"update","table":"Port","where":[],{row}}}"#));
        assert!(reply.contains(r#"{"count":1}"#), "{reply}");
    }
}

/// A server has compacted its file and could not leave a side file: that is one line, its clients
/// notice nothing, and all who come back to another one are told everything, once.
fn goes_on_without_side_file(
    scratch: &Scratch,
    server: Server,
    mut followers: Vec<Follower>,
    why: &str,
    save: impl FnOnce(&Server),
) {
    let line = format!("the change log beside the file could not be written ({why})");
    let log = server.log();
    let said: Vec<&str> = log.lines().filter(|told| told.contains(&line)).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("|INFO|"), "{log}");
    assert!(side_files(scratch).is_empty());
    let come_back = |followers: &mut Vec<Follower>, server: &Server, expected: bool| {
        for follower in followers {
            assert_eq!(follower.come_back(server), expected, "{}", follower.requests);
            follower.is_right(server);
        }
    };
    // The process still knows all.
    come_back(&mut followers, &server, true);
    save(&server);
    server.kill();
    let server = Server::start(scratch);
    come_back(&mut followers, &server, false);
    server.client().transact(&insert("behind", "text"));
    server.kill();
    let server = Server::start(scratch);
    come_back(&mut followers, &server, true);
    server.is_well();
}

/// A server with followers and more changes than rows.
fn with_changes(scratch: &Scratch, command: Command) -> (Server, Vec<Follower>) {
    let server = Server::spawn(scratch, command);
    let mut followers = Follower::all();
    followers.iter_mut().for_each(|one| assert!(!one.come_back(&server)));
    write_much(&server);
    followers.iter_mut().for_each(Follower::catch_up);
    server.client().transact(&insert("q", "after they have left"));
    (server, followers)
}

fn compacts(server: &Server) {
    let reply = server.admin("ovsdb-server/compact", "");
    assert!(reply.contains(r#""error":null"#), "{reply}");
}

#[test]
fn a_side_file_that_may_not_be_as_long_is_left_out() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let link = scratch.link("ovsdb-server");
    let mut shell = scratch.command("sh");
    // 1,500 blocks of 512 bytes: room for the database, and not for both sides of all changes.
    let line = format!(r#"ulimit -S -f 1500; exec "{}" "$@""#, link.display());
    shell.args(["-c", &line, "sh"]).args(Server::ARGS);
    let (server, followers) = with_changes(&scratch, shell);
    compacts(&server);
    goes_on_without_side_file(&scratch, server, followers, "File too large", |_| ());
}

#[test]
fn a_side_file_for_which_the_disk_has_no_room_is_left_out() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    fs::create_dir(scratch.path("disk")).expect("a folder");
    // A disk that only the server sees, in a namespace of its own.
    let mount =
        "mount -t tmpfs -o size=1M tmpfs disk && cp net.db disk/ && ln -sf disk/net.db net.db";
    let link = scratch.link("ovsdb-server");
    let unshare = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let tried = scratch.command("unshare").args(unshare).arg(format!("set -e; {mount}")).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("skipped: no mount namespace may be created here");
        return;
    }
    fs::remove_file(scratch.path("net.db")).expect("the link");
    create(&scratch, "net.db");
    let mut command = scratch.command("unshare");
    command.args(unshare).arg(format!(r#"{mount} && exec "{}" "$@""#, link.display()));
    command.arg("sh").args(Server::ARGS);
    let (server, followers) = with_changes(&scratch, command);
    compacts(&server);
    let save = |server: &Server| {
        let disk = PathBuf::from(format!("/proc/{}/root", server.pid()))
            .join(scratch.path("disk").strip_prefix("/").expect("absolute"));
        let left = fs::read_dir(&disk).expect("the disk").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, [".net.db.~lock~", "net.db"]);
        fs::remove_file(scratch.path("net.db")).expect("the link");
        fs::copy(disk.join("net.db"), scratch.path("net.db")).expect("a copy");
    };
    goes_on_without_side_file(&scratch, server, followers, "No space left on device", save);
}

#[test]
fn a_side_file_whose_name_would_be_too_long_is_left_out() {
    let scratch = Scratch::new();
    let name = "n".repeat(236);
    create(&scratch, &name);
    std::os::unix::fs::symlink(&name, scratch.path("net.db")).expect("a link");
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    command.args(Server::ARGS);
    let (server, followers) = with_changes(&scratch, command);
    compacts(&server);
    goes_on_without_side_file(&scratch, server, followers, "File name too long", |_| ());
}

#[test]
fn in_a_folder_that_nobody_may_write_to_the_file_stays_and_clients_are_resumed() {
    let scratch = Scratch::new();
    create(&scratch, "net.db");
    let folder = scratch.path("folder");
    fs::create_dir(&folder).expect("a folder");
    fs::rename(scratch.path("net.db"), folder.join("net.db")).expect("it moves");
    std::os::unix::fs::symlink("folder/net.db", scratch.path("net.db")).expect("a link");
    fs::write(folder.join(".net.db.~lock~"), "").expect("the lock file");
    let mode = |mode: &str, path: &str| scratch.run("chmod", &[mode, path]).status.success();
    assert!(mode("777", ".") && mode("666", "folder/net.db"));
    assert!(mode("666", "folder/.net.db.~lock~") && mode("555", "folder"));
    // Root may write anywhere; somebody else may not.
    let start = || {
        let link = scratch.link("ovsdb-server");
        let is_root = scratch.run("id", &["-u"]).stdout == b"0\n";
        let mut command = scratch.command(if is_root { "setpriv".into() } else { link.clone() });
        if is_root {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(link);
        }
        command.args(Server::ARGS);
        command
    };
    let may_run = start().arg("--version").output();
    if !may_run.is_ok_and(|run| run.status.success()) {
        eprintln!("skipped: nobody else may run the server");
        return;
    }
    let (server, mut followers) = with_changes(&scratch, start());
    let reply = server.admin("ovsdb-server/compact", "");
    assert!(reply.contains("Permission denied"), "{reply}");
    for life in 0..2 {
        server_goes_on(&server, &mut followers, life);
    }
    server.kill();
    fs::remove_file(scratch.path("s.sock")).ok();
    fs::remove_file(scratch.path("ctl.sock")).ok();
    let server = Server::spawn(&scratch, start());
    server_goes_on(&server, &mut followers, 2);
    server.is_well();
    drop(server);
    assert!(mode("755", "folder"));
}

/// Clients are resumed, and what is written then arrives.
fn server_goes_on(server: &Server, followers: &mut [Follower], life: usize) {
    for follower in followers.iter_mut() {
        assert!(follower.come_back(server), "{}", follower.requests);
        follower.is_right(server);
    }
    let reply = server.client().transact(&insert(&format!("life {life}"), "text"));
    assert!(reply.contains(r#"{"uuid":["uuid","#), "{reply}");
    for follower in followers {
        follower.catch_up();
        follower.is_right(server);
    }
}

/// Followers leave with an id from before a compaction, then the server is killed.
fn compacted_and_killed(scratch: &Scratch) -> Vec<Follower> {
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    command.args(Server::ARGS);
    let (server, followers) = with_changes(scratch, command);
    compacts(&server);
    server.kill();
    followers
}

#[test]
fn whatever_is_in_the_place_of_a_side_file_is_never_believed_and_holds_up_nobody() {
    type Tamper = fn(&Path);
    let cases: [(&str, bool, Tamper); 9] = [
        ("as it is", true, |_| ()),
        ("gone", false, |path| fs::remove_file(path).expect("it was there")),
        ("empty", false, |path| fs::write(path, "").expect("a file")),
        ("cut off", false, |path| {
            let bytes = fs::read(path).expect("a file");
            fs::write(path, &bytes[..bytes.len() / 2]).expect("a file");
        }),
        ("one bit", false, |path| {
            let mut bytes = fs::read(path).expect("a file");
            let at = bytes.len() / 3;
            bytes[at] ^= 4;
            fs::write(path, bytes).expect("a file");
        }),
        ("huge", false, |path| {
            let file = fs::OpenOptions::new().write(true).open(path).expect("a file");
            file.set_len(1 << 40).expect("a sparse file");
        }),
        ("a link to itself as it was", false, |path| {
            let moved = path.with_file_name("moved");
            fs::rename(path, &moved).expect("it moves");
            std::os::unix::fs::symlink(moved, path).expect("a link");
        }),
        ("a folder", false, |path| {
            fs::remove_file(path).expect("it was there");
            fs::create_dir(path).expect("a folder");
        }),
        ("a pipe that nobody writes to", false, |path| {
            fs::remove_file(path).expect("it was there");
            assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
        }),
    ];
    for (name, is_found, tamper) in cases {
        println!("{name}");
        let scratch = Scratch::new();
        create(&scratch, "net.db");
        let mut followers = compacted_and_killed(&scratch);
        let files = side_files(&scratch);
        assert_eq!(files.len(), 1, "{files:?}");
        tamper(&files[0]);
        for expected in [is_found, true] {
            let server = Server::start(&scratch);
            for follower in &mut followers {
                assert_eq!(follower.come_back(&server), expected, "{name}");
                follower.is_right(&server);
            }
            server.client().transact(&insert(&format!("{expected}"), "more"));
            compacts(&server);
            followers.iter_mut().for_each(Follower::catch_up);
            server.is_well();
            server.kill();
        }
    }
}

#[test]
fn the_side_file_of_another_database_is_no_good_under_any_name() {
    let (one, other) = (Scratch::new(), Scratch::new());
    let mut followers = Vec::new();
    for scratch in [&one, &other] {
        create(scratch, "net.db");
        followers.push(compacted_and_killed(scratch));
    }
    let [path, stranger] = [&one, &other].map(|scratch| side_files(scratch).remove(0));
    fs::copy(stranger, path).expect("a copy");
    let server = Server::start(&one);
    for follower in followers.iter_mut().flatten() {
        assert!(!follower.come_back(&server), "of {}", follower.requests);
        follower.is_right(&server);
    }
    server.is_well();
}
