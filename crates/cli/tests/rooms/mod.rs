//! Folders with the programs of one side and, if wanted, a server of either side, in which lines of
//! shell run.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::thread::ScopedJoinHandle;

use crate::support::{Running, Scratch, eventually, listens, reference};

/// A folder, the programs that its lines call, and the server that they ask.
pub(crate) struct Room {
    /// Whose server; rooms are compared with those of the same.
    server: &'static str,
    scratch: Scratch,
    _running: Option<Running>,
}

const PROGRAMS: [&str; 3] = ["ovsdb-client", "ovsdb-tool", "ovs-appctl"];

/// Files that every room begins with.
const FILES: [(&str, &str); 3] = [
    ("odd.ovsschema", include_str!("odd.ovsschema")),
    ("rows", include_str!("rows.json")),
    ("wide.ovsschema", include_str!("wide.ovsschema")),
];

/// What the lines may call.
const PRELUDE: &str = include_str!("prelude.sh");

impl Room {
    /// Without a server: ours, then the reference's programs.
    pub(crate) fn with_files() -> Option<Vec<Self>> {
        [true, false].into_iter().map(|ours| Self::new("none", ours, None)).collect()
    }

    /// Ours and theirs with our server, then ours and theirs with the reference's.
    pub(crate) fn with_every_server() -> Option<Vec<Self>> {
        let sides = [(true, true), (true, false), (false, true), (false, false)];
        let room = |(our_server, ours)| {
            let name = if our_server { "ours" } else { "theirs" };
            Self::new(name, ours, Some(our_server))
        };
        sides.into_iter().map(room).collect()
    }

    /// All of ours, then all of theirs.
    pub(crate) fn with_servers() -> Option<Vec<Self>> {
        [true, false].into_iter().map(|ours| Self::new("each its own", ours, Some(ours))).collect()
    }

    fn new(server: &'static str, ours: bool, serve: Option<bool>) -> Option<Self> {
        let scratch = Scratch::new();
        for (name, text) in FILES {
            scratch.write(name, text);
        }
        let programs = PROGRAMS.into_iter().map(|name| Some((name, reference(name)?)));
        let programs: Vec<_> = programs.collect::<Option<_>>()?;
        for (name, path) in programs {
            if ours {
                scratch.link(name);
            } else {
                let bin = scratch.path("bin");
                std::fs::create_dir_all(&bin).expect("bin");
                symlink(path, bin.join(name)).expect("a link");
            }
        }
        let program = match serve {
            None => None,
            Some(true) => Some(link(&scratch, "weir")),
            Some(false) => Some(reference("ovsdb-server")?),
        };
        // The reference's ids are zero.
        let options: &[&str] = if serve == Some(true) { &["--no-standalone-history"] } else { &[] };
        let running = program.map(|program| start(&scratch, &program, options));
        Some(Self { server, scratch, _running: running })
    }

    /// Status, output and complaints of a line.
    fn run(&self, line: &str, blind: bool) -> Said {
        let file = |name| File::create(self.scratch.path(name)).expect("a file");
        let path = format!("{}:/usr/bin:/bin", self.scratch.text("bin"));
        let mut command = self.scratch.command("sh");
        command.env("PATH", path).env("TZ", "UTC").env_remove("OVS_CTL_TIMEOUT");
        command.args(["-c", &format!("{PRELUDE}\n{line}")]);
        // Not pipes: who stays in the background would hold them open.
        command.stdout(Stdio::from(file(".out"))).stderr(Stdio::from(file(".err")));
        let status = command.status().expect("sh");
        let read = |name| std::fs::read(self.scratch.path(name)).expect("what was written");
        let text = |name| String::from_utf8_lossy(&read(name)).into_owned();
        let mut names = Names { folder: self.scratch.text(""), blind, known: vec![] };
        let (out, err) = (names.normal(&text(".out")), names.normal(&text(".err")));
        Said { status: status.to_string(), out, err }
    }
}

impl Drop for Room {
    /// Who was left in the background goes.
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.scratch.path("")).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|end| end != "pid") {
                continue;
            }
            let pid = std::fs::read_to_string(path).unwrap_or_default();
            if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

fn link(scratch: &Scratch, folder: &str) -> std::path::PathBuf {
    let folder = scratch.path(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join("ovsdb-server");
    symlink(crate::support::WEIR, &link).expect("a link");
    link
}

/// A server of `odd.db` with the rows of every awkward kind.
fn start(scratch: &Scratch, program: &Path, options: &[&str]) -> Running {
    let tool = scratch.path("bin").join("ovsdb-tool");
    let done = scratch.run(tool, &["create", "odd.db", "odd.ovsschema"]);
    assert!(done.status.success());
    let mut command = scratch.command(program);
    command.args(["--remote=punix:db.sock", "--unixctl=server.ctl", "-vconsole:off"]);
    let running = Running::start(command.args(options).arg("odd.db"));
    eventually("the server listens", || listens(&scratch.path("server.ctl")));
    let client = scratch.path("bin").join("ovsdb-client");
    let rows = std::fs::read_to_string(scratch.path("rows")).expect("rows");
    let inserted = scratch.run(client, &["transact", &rows]);
    assert!(crate::support::out(&inserted).contains("uuid"));
    running
}

/// What came of a line.
#[derive(Clone, PartialEq, Eq)]
struct Said {
    status: String,
    out: String,
    err: String,
}

impl Said {
    fn sorted(mut self) -> Self {
        for text in [&mut self.out, &mut self.err] {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            *text = lines.join("\n");
        }
        self
    }
}

/// Runs the lines of a file in all rooms, ours and theirs in turn, and compares.
pub(crate) fn compare(file: &str, rooms: Vec<Room>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lines").join(file);
    let text = std::fs::read_to_string(path).expect("the lines");
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let heard: Vec<(&str, Vec<Said>)> = std::thread::scope(|scope| {
        let each = |room: Room| {
            let (lines, room_server) = (&lines, room.server);
            let run = move || lines.iter().map(|line| said(&room, line)).collect();
            (room_server, scope.spawn(run))
        };
        let threads: Vec<_> = rooms.into_iter().map(each).collect();
        let end = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("the lines run");
        threads.into_iter().map(|(server, thread)| (server, end(thread))).collect()
    });
    let mut differences = String::new();
    for pair in heard.chunks(2) {
        let [(server, ours), (_, theirs)] = pair else { panic!("rooms come in pairs") };
        for ((line, ours), theirs) in lines.iter().zip(ours).zip(theirs) {
            if ours != theirs {
                let _ = write!(differences, "\n\n=== {line}\n  (server: {server})");
                for (side, said) in [("ours", ours), ("theirs", theirs)] {
                    let Said { status, out, err } = said;
                    let _ = write!(differences, "\n--- {side}: {status}\n{out}\n-- stderr\n{err}");
                }
            }
        }
    }
    assert!(differences.is_empty(), "{file}: {differences}");
}

fn said(room: &Room, line: &str) -> Said {
    match line.strip_prefix("sorted: ") {
        Some(line) => room.run(line, true).sorted(),
        None => room.run(line, false),
    }
}

/// What differs from run to run, made equal.
struct Names {
    folder: String,
    /// Leaves all UUIDs without a number, for lines in any order.
    blind: bool,
    /// UUIDs, as they came.
    known: Vec<String>,
}

impl Names {
    /// Without folders, times, process ids, ports and versions; UUIDs are numbered as they come, and
    /// so are their first digits.
    fn normal(&mut self, text: &str) -> String {
        let text = text.replace(&self.folder, "DIR/");
        let text = text.replace(self.folder.trim_end_matches('/'), "DIR");
        let (mut result, mut rest) = (String::new(), text.as_str());
        while let Some(first) = rest.chars().next() {
            let form = FORMS.iter().find(|(form, _)| starts(rest, form));
            let length = if starts(rest, UUID) {
                result += &self.number(&rest[..UUID.len()]);
                UUID.len()
            } else if let Some((form, name)) = form {
                result += name;
                form.len()
            } else {
                result.push(first);
                first.len_utf8()
            };
            rest = rest.get(length..).unwrap_or_default();
        }
        self.short_ids(&without_numbers(result))
    }

    fn number(&mut self, uuid: &str) -> String {
        let found = self.known.iter().position(|known| known == uuid);
        let place = found.unwrap_or_else(|| {
            self.known.push(uuid.to_owned());
            self.known.len() - 1
        });
        if self.blind { "<>".to_owned() } else { format!("<{place}>") }
    }

    /// `show-log` and HTML have the first eight digits of a UUID.
    fn short_ids(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, uuid) in self.known.iter().enumerate().filter(|_| !self.blind) {
            text = text.replace(&uuid[..8], &format!("<{place}>"));
        }
        let (mut result, mut word) = (String::new(), String::new());
        for character in text.chars().chain(['\n']) {
            if character.is_ascii_alphanumeric() {
                word.push(character);
                continue;
            }
            let is_short = self.blind && word.len() == 8 && has_form(&word, "xxxxxxxx");
            result += if is_short { "<>" } else { &word };
            word.clear();
            result.push(character);
        }
        result.pop();
        result
    }
}

/// Versions in comments, process ids in names of sockets.
fn without_numbers(mut text: String) -> String {
    for version in ["3.1.0", weir_host::version::OVS_VERSION] {
        text = text.replace(&format!("by ovsdb-tool {version}"), "by ovsdb-tool VERSION");
    }
    let mut parts = text.split("ovsdb-client.");
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        result += if rest.len() < part.len() { "ovsdb-client.PID" } else { "ovsdb-client." };
        result += rest;
    }
    result
}

/// Digits where there is a 0, anything hexadecimal where there is an x.
const UUID: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
const FORMS: [(&str, &str); 4] = [
    ("2000-00-00T00:00:00.000Z", "TIME"),
    ("2000-00-00T00:00:00Z", "TIME"),
    ("2000-00-00 00:00:00.000", "TIME"),
    ("2000-00-00 00:00:00", "TIME"),
];

fn starts(text: &str, form: &str) -> bool {
    text.get(..form.len()).is_some_and(|text| has_form(text, form))
}

fn has_form(text: &str, form: &str) -> bool {
    text.bytes().zip(form.bytes()).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'x' => byte.is_ascii_hexdigit(),
        form => byte == form,
    })
}
