//! One script on both servers, the reference's and ours, in the same folder one after the other:
//! what it prints, what is logged and which files stay must be equal.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Scratch, reference};

/// What every script may use.
const PRELUDE: &str = r#"
# Nobody is left behind, whatever happens.
trap 'kill -9 $(cat ovsdb-server.pid 2>/dev/null) 2>/dev/null' EXIT
# A server in the foreground: what it says, and its status.
run() { echo "\$ $*"; timeout 20 ovsdb-server --no-dbs "$@" 2>&1; echo "status $?"; }
# The same with databases.
serve() { echo "\$ $*"; timeout 20 ovsdb-server "$@" 2>&1; echo "status $?"; }
# A daemon, an admin command for it, and its end.
start() { ovsdb-server -vconsole:off --detach --no-chdir --pidfile --log-file "$@" 2>&1; echo "start $?"; }
admin() { echo "\$ $*"; timeout 20 ovs-appctl -t ovsdb-server "$@" 2>&1; local s=$?; [ $s = 0 ] || echo "status $s"; }
stop() { local pid=$(cat ovsdb-server.pid); ovs-appctl -t ovsdb-server exit; while kill -0 $pid 2>/dev/null; do sleep .01; done; }
create() { ovsdb-tool create ${1:-d.db} $SCHEMA; }
transact() { ovsdb-client -t 20 transact unix:$PWD/s "$@" 2>&1; }
# Its own variable has a name that no condition has.
wait_for() { local tries_=0; until eval "$1"; do sleep .02; tries_=$((tries_ + 1)); [ $tries_ -lt 3000 ] || { echo "in vain: $1"; break; }; done; }
log() { echo "-- log"; cat ovsdb-server.log; }
"#;

/// A database for all of them: every kind of remote and TLS setting.
const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{
  "T":{"isRoot":true,"columns":{"s":{"type":"string"},"i":{"type":"integer"},
    "ss":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "m":{"type":{"key":{"type":"uuid","refTable":"M"},"min":0,"max":"unlimited"}}}},
  "S":{"isRoot":true,"columns":{"private_key":{"type":"string"},"certificate":{"type":"string"},
    "ca_cert":{"type":"string"},"ssl_protocols":{"type":"string"},"ssl_ciphers":{"type":"string"}}},
  "M":{"columns":{"target":{"type":"string"},"is_connected":{"type":"boolean","ephemeral":true},
    "max_backoff":{"type":{"key":{"type":"integer","minInteger":1000},"min":0,"max":1}},
    "inactivity_probe":{"type":{"key":"integer","min":0,"max":1}},"role":{"type":"string"},
    "other_config":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "status":{"ephemeral":true,
      "type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}}}}"#;

/// Lines that only one of them has, that come at their own time, or say how busy this machine is.
const ASIDE: [&str; 8] = [
    "fatal_signal|WARN|could not unlink",
    "socket_util_unix|WARN|unlinking ",
    "poll_loop|DBG|",
    "hmap|DBG|",
    "process|DBG|",
    "memory|INFO|",
    "timeval|WARN|",
    "Weir ",
];

/// Both servers, and the folder they take turns in.
pub(crate) struct Beside {
    folder: Scratch,
    ours: Scratch,
    theirs: PathBuf,
}

impl Beside {
    /// `None`, and said so, where the reference is not installed.
    pub(crate) fn new() -> Option<Self> {
        let server = reference("ovsdb-server")?;
        for other in ["ovs-appctl", "ovsdb-client", "ovsdb-tool"] {
            reference(other)?;
        }
        let theirs = server.parent()?.to_owned();
        let ours = Scratch::new();
        ours.link("ovsdb-server");
        ours.write("d.ovsschema", SCHEMA);
        Some(Self { folder: Scratch::new(), ours, theirs })
    }

    /// Runs a script on both sides and compares; what both said.
    pub(crate) fn alike(&self, script: &str) -> String {
        let theirs = self.told(&self.theirs, script);
        let ours = self.told(&self.ours.path("bin"), script);
        assert!(theirs.lines().count() > 1, "nothing to compare:\n{script}\n{theirs}");
        let is_in_vain = |line: &str| line.starts_with("in vain: ");
        assert!(!theirs.lines().any(is_in_vain), "waited in vain:\n{script}\n{theirs}");
        let differs = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!(ours, theirs, "\n{script}\nfirst difference: {differs:#?}");
        theirs
    }

    fn told(&self, servers: &Path, script: &str) -> String {
        let folder = self.folder.path("");
        std::fs::remove_dir_all(&folder).expect("the folder goes");
        std::fs::create_dir(&folder).expect("the folder comes");
        let path = format!("{}:/usr/bin:/usr/sbin:/bin:/sbin", servers.display());
        let mut shell: Command = self.folder.command("bash");
        shell.args(["-c", &format!("{PRELUDE}{script}")]).env("PATH", path);
        shell.env("SCHEMA", self.ours.path("d.ovsschema"));
        let output = shell.output().expect("bash");
        let mut files: Vec<String> = std::fs::read_dir(&folder)
            .expect("the folder")
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        files.sort_unstable();
        let said = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<String> = said.lines().map(normal).collect();
        let kept = lines.iter().filter(|line| !ASIDE.iter().any(|aside| line.starts_with(aside)));
        kept.cloned().collect::<Vec<_>>().join("\n") + "\nfiles: " + &normal(&files.join(" "))
    }
}

/// A line without what differs from run to run and from version to version.
fn normal(line: &str) -> String {
    let line = match line.split_once("Z|") {
        Some((time, rest)) if time.starts_with("20") => {
            rest.split_once('|').unwrap_or(("", rest)).1
        }
        _ => line,
    };
    let line = line.replace("3.1.0", "4.0.90");
    let places = ["ovsdb-server.", "pid ", "listening on port ", "bound_port\",\"", "127.0.0.1:"];
    places.iter().fold(line, |line, before| without_number(&line, before))
}

/// The number behind each `before` becomes an N.
fn without_number(text: &str, before: &str) -> String {
    let mut parts = text.split(before);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out += before;
        out += if rest.len() < part.len() { "N" } else { "" };
        out += rest;
    }
    out
}
