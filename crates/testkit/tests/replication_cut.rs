//! The connection between an active server and its backup is cut behind every so many bytes, in
//! either direction, between servers of both makes. The backup has then what it had or what the
//! active server has, never a part of it; and when the connection is whole again, it has all.
//!
//! `CUT_STRIDE=1` cuts behind every byte.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use serde_json::{Value, json};
use weir_testkit::dump::Dump;
use weir_testkit::files;
use weir_testkit::patience::eventually;
use weir_testkit::process::{Program, Scratch, Server, both, weir};

/// Cuts are so many bytes apart.
const STRIDE: usize = 7;

/// From the backup to the active server, and back.
const DIRECTIONS: usize = 2;

/// What the proxy is told, and tells.
#[derive(Debug)]
struct Wire {
    /// Bytes that may pass in each direction.
    limits: Mutex<[usize; DIRECTIONS]>,
    /// Bytes that have passed in each direction, on the last connection.
    passed: [AtomicUsize; DIRECTIONS],
    cuts: AtomicUsize,
    /// Directions of connections that are open.
    open: AtomicUsize,
    over: AtomicBool,
}

/// A place to connect to that passes bytes on to another, up to a limit.
struct Proxy {
    path: PathBuf,
    wire: Arc<Wire>,
}

impl Proxy {
    fn start(path: PathBuf, upstream: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).expect("a proxy's socket");
        let wire = Arc::new(Wire {
            limits: Mutex::new([usize::MAX; DIRECTIONS]),
            passed: Default::default(),
            cuts: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let proxy = Self { path, wire: Arc::clone(&wire) };
        spawn(move || {
            for backup in listener.incoming().map_while(Result::ok) {
                if wire.over.load(SeqCst) {
                    return;
                }
                let Ok(active) = UnixStream::connect(&upstream) else { continue };
                let limits = *wire.limits.lock().expect("limits");
                wire.open.fetch_add(DIRECTIONS, SeqCst);
                let ends = [(&backup, &active), (&active, &backup)];
                for (direction, (from, to)) in ends.into_iter().enumerate() {
                    wire.passed[direction].store(0, SeqCst);
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("from"), to.expect("to"));
                    let wire = Arc::clone(&wire);
                    spawn(move || wire.pass(from, to, direction, limits[direction]));
                }
            }
        });
        proxy
    }

    fn limit(&self, limits: [usize; DIRECTIONS]) {
        *self.wire.limits.lock().expect("limits") = limits;
    }

    fn wait_until_idle(&self) {
        eventually(|| match self.wire.open.load(SeqCst) {
            0 => Ok(()),
            open => Err(format!("{open} directions are open")),
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.over.store(true, SeqCst);
        UnixStream::connect(&self.path).ok();
    }
}

impl Wire {
    fn pass(&self, mut from: UnixStream, mut to: UnixStream, direction: usize, limit: usize) {
        let mut buffer = [0; 4096];
        loop {
            let left = limit - self.passed[direction].load(SeqCst);
            if left == 0 {
                self.cuts.fetch_add(1, SeqCst);
                break;
            }
            let room = buffer.len().min(left);
            let Ok(count @ 1..) = from.read(&mut buffer[..room]) else { break };
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.passed[direction].fetch_add(count, SeqCst);
        }
        from.shutdown(std::net::Shutdown::Both).ok();
        to.shutdown(std::net::Shutdown::Both).ok();
        self.open.fetch_sub(1, SeqCst);
    }
}

fn serve(scratch: &Scratch, program: &Program, file: &str) -> Server {
    let columns =
        json!({"x": {"type": "integer"}, "s": {"type": {"key": "string", "min": 0, "max": 5}}});
    let schema = json!({"name": "D", "version": "1.0.0", "tables": {"T": {"columns": columns}}});
    let path = scratch.file(file);
    files::create(&path, &schema).expect("a file");
    Server::start(program, &[path]).expect("a server")
}

fn admin(server: &Server, command: &str, args: &[&str]) -> String {
    server.admin(&format!("ovsdb-server/{command}"), args).expect(command)
}

/// All rows with their UUIDs; versions are each server's own.
fn rows(server: &Server) -> Value {
    let mut session = server.connect().expect("a session");
    let dump = Dump::read(&mut session, "D", &["T".to_owned()]).expect("rows");
    let row = |(_, uuid, row): (_, &String, &serde_json::Map<String, Value>)| {
        (uuid.clone(), json!([row["x"], row["s"]]))
    };
    Value::Object(dump.rows().map(row).collect())
}

/// Replaces the rows of the active server by others, as many.
fn change(active: &Server, number: usize) {
    let row = |x: usize| json!({"op": "insert", "table": "T", "row": {"x": x, "s": "one"}});
    let ops = [
        json!({"op": "delete", "table": "T", "where": []}),
        row(1000 + number),
        row(10_000 + number),
    ];
    let mut session = active.connect().expect("a session");
    let told = session.transact("D", &ops).expect("an answer").to_string();
    assert!(!told.contains("error"), "{told}");
}

/// One backup, one active server, and what is between them.
struct Scene {
    active: Server,
    backup: Server,
    proxy: Proxy,
    _scratch: Scratch,
}

impl Scene {
    fn new(active: &Program, backup: &Program) -> Self {
        let scratch = Scratch::new("cut");
        let active = serve(&scratch, active, "active.db");
        let backup = serve(&scratch, backup, "backup.db");
        let proxy = Proxy::start(scratch.file("proxy.sock"), active.socket());
        let source = format!("unix:{}", Path::display(&proxy.path));
        admin(&backup, "set-active-ovsdb-server", &[&source]);
        Self { active, backup, proxy, _scratch: scratch }
    }

    fn connect(&self, limits: [usize; DIRECTIONS]) {
        self.proxy.limit(limits);
        admin(&self.backup, "connect-active-ovsdb-server", &[]);
    }

    fn disconnect(&self) {
        admin(&self.backup, "disconnect-active-ovsdb-server", &[]);
        self.proxy.wait_until_idle();
    }

    fn becomes_equal(&self) {
        eventually(|| {
            let (wanted, found) = (rows(&self.active), rows(&self.backup));
            let told = || format!("{wanted} {found}\n{}", self.backup.log());
            if wanted == found { Ok(()) } else { Err(told()) }
        });
    }

    /// What a whole connection takes in each direction until the rows are there.
    fn measure(&self) -> [usize; DIRECTIONS] {
        change(&self.active, 0);
        self.connect([usize::MAX; DIRECTIONS]);
        self.becomes_equal();
        self.disconnect();
        [0, 1].map(|direction| self.proxy.wire.passed[direction].load(SeqCst))
    }

    /// Cuts a connection behind so many bytes of one direction.
    fn cut(&self, direction: usize, bytes: usize, is_atomic: bool) {
        let before = rows(&self.backup);
        let cuts = self.proxy.wire.cuts.load(SeqCst);
        let mut limits = [usize::MAX; DIRECTIONS];
        limits[direction] = bytes;
        self.connect(limits);
        eventually(|| match self.proxy.wire.cuts.load(SeqCst) > cuts {
            true => Ok(()),
            false => Err(format!("{bytes} bytes in direction {direction} do not pass")),
        });
        let (now, wanted) = (rows(&self.backup), rows(&self.active));
        assert!(
            !is_atomic || now == before || now == wanted,
            "direction {direction}, {bytes} bytes: {now}"
        );
        let status = admin(&self.backup, "sync-status", &[]);
        assert!(status.contains("state: backup"), "{status}");
        self.disconnect();
        self.connect([usize::MAX; DIRECTIONS]);
        self.becomes_equal();
        self.disconnect();
        let status = admin(&self.backup, "sync-status", &[]);
        assert!(status.contains("state: active"), "{status}");
    }
}

fn survives_cuts(active: &Program, backup: &Program) {
    let stride = std::env::var("CUT_STRIDE").ok().and_then(|text| text.parse().ok());
    let scene = Scene::new(active, backup);
    let lengths = scene.measure();
    assert!(lengths.iter().all(|length| *length > 100), "hardly anything was said: {lengths:?}");
    let mut number = 0;
    for (direction, length) in lengths.into_iter().enumerate() {
        for bytes in (0..length).step_by(stride.unwrap_or(STRIDE)) {
            number += 1;
            change(&scene.active, number);
            // COMPAT.md: the reference deletes all rows first.
            scene.cut(direction, bytes, scene.backup.label() == "weir");
        }
    }
}

#[test]
fn weir_of_weir() {
    survives_cuts(&weir(), &weir());
}

#[test]
fn weir_of_the_reference() {
    let Some((reference, weir)) = both("weir_of_the_reference") else { return };
    survives_cuts(&reference, &weir);
}

#[test]
fn the_reference_of_weir() {
    let Some((reference, weir)) = both("the_reference_of_weir") else { return };
    survives_cuts(&weir, &reference);
}
