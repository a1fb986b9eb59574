//! `ovsdb-tool` twice, the reference's and ours, each in a folder of its own with equal files.

#![allow(dead_code, reason = "every test uses another part")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{Scratch, err, out, reference};

/// Both programs and their folders.
pub(crate) struct Pair {
    theirs: Scratch,
    ours: Scratch,
    reference: PathBuf,
    tool: PathBuf,
}

impl Pair {
    /// `None`, and said so, where the reference is not installed.
    pub(crate) fn new() -> Option<Self> {
        let reference = reference("ovsdb-tool")?;
        let (theirs, ours) = (Scratch::new(), Scratch::new());
        let tool = ours.link("ovsdb-tool");
        Some(Self { theirs, ours, reference, tool })
    }

    /// Writes a file with the same content on both sides.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        for side in [&self.theirs, &self.ours] {
            std::fs::write(side.path(name), content).expect("a file");
        }
    }

    /// A symbolic link on both sides.
    pub(crate) fn link(&self, target: &str, name: &str) {
        for side in [&self.theirs, &self.ours] {
            std::os::unix::fs::symlink(target, side.path(name)).expect("a link");
        }
    }

    /// Our file of this name.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.ours.path(name)).expect("a file")
    }

    /// Where our file of this name is.
    pub(crate) fn ours(&self, name: &str) -> PathBuf {
        self.ours.path(name)
    }

    /// Where the reference's file of this name is.
    pub(crate) fn theirs(&self, name: &str) -> PathBuf {
        self.theirs.path(name)
    }

    /// The reference does something, and both sides get the file that came of it (the argument
    /// behind the command's name).
    pub(crate) fn prepare(&self, args: &[&str]) {
        let done = self.theirs.run(&self.reference, args);
        assert!(done.status.success(), "{args:?}: {}", err(&done));
        let name = args.get(1).expect("a file");
        std::fs::copy(self.theirs.path(name), self.ours.path(name)).expect("a copy");
    }

    /// Each side gets the other's file.
    pub(crate) fn exchange(&self, name: &str) {
        let (theirs, ours) = (self.theirs.path(name), self.ours.path(name));
        let content = std::fs::read(&theirs).expect("their file");
        std::fs::copy(&ours, &theirs).expect("a copy");
        std::fs::write(&ours, content).expect("our file");
    }

    /// Both locks of a database of this name, held by this process.
    pub(crate) fn lock(&self, name: &str) -> Vec<std::fs::File> {
        let lock = |side: &Scratch| {
            let file = std::fs::File::create(side.path(&format!(".{name}.~lock~")));
            let file = file.expect("a lock file");
            rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive)
                .expect("a lock");
            file
        };
        vec![lock(&self.theirs), lock(&self.ours)]
    }

    /// Runs both and compares what they say.
    pub(crate) fn compare(&self, args: &[&str]) {
        let theirs = said(&self.theirs, &self.theirs.run(&self.reference, args));
        let ours = said(&self.ours, &self.ours.run(&self.tool, args));
        assert_eq!(ours, theirs, "{args:?}");
    }

    /// Compares the files of new servers, whose ids differ, if they have them.
    pub(crate) fn compare_new_server(&self, name: &str) {
        let content = |side: &Scratch| {
            let log = out(&side.run(&self.reference, &["-mm", "show-log", name]));
            let is_id = |line: &&str| !line.contains("_id: ") && !line.contains("eid: ");
            let lines: Vec<String> = log.lines().filter(is_id).map(without_ids).collect();
            let check = side.run(&self.reference, &["check-cluster", name]).status.code();
            (lines, check)
        };
        assert_eq!(content(&self.ours), content(&self.theirs), "{name}");
    }

    /// Compares what both sides' files hold, if they have them.
    pub(crate) fn compare_file(&self, name: &str) {
        let content = |side: &Scratch| {
            if !side.path(name).exists() {
                return None;
            }
            let log = side.run(&self.reference, &["-mm", "show-log", name]);
            Some((said(side, &log), side.path(name).is_symlink()))
        };
        assert_eq!(content(&self.ours), content(&self.theirs), "{name}");
    }
}

/// Status, standard output and standard error, in a form in which equal things are equal.
fn said(side: &Scratch, output: &Output) -> (Option<i32>, String, String) {
    let mut names = BTreeMap::new();
    let folder = side.text("");
    let stdout = canonical(&out(output));
    let stdout = stdout.lines().map(|line| normal(line, &mut names) + "\n").collect();
    let stderr = err(output).replace(&folder, "FOLDER/");
    let stderr = stderr.lines().map(|line| normal(line, &mut names) + "\n").collect();
    (output.status.code(), stdout, stderr)
}

/// One line without what differs from run to run: dates of today, versions, and UUIDs, which are
/// numbered as they come.
fn normal(line: &str, names: &mut BTreeMap<String, usize>) -> String {
    let line = match line.split_once("Z|") {
        Some((date, rest)) if date.len() == "2026-01-01T00:00:00".len() => rest,
        _ => line,
    };
    let mut words = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let uuid = rest.get(..36).filter(|text| is_uuid(text));
        if let Some(uuid) = uuid {
            let count = names.len();
            let number = names.entry(uuid.to_owned()).or_insert(count);
            words += &format!("<{number}>");
            rest = &rest[36..];
        } else {
            words.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    let versions = ["3.1.0", weir_host::version::OVS_VERSION];
    let words = versions.iter().fold(words, |words, version| {
        words.replace(&format!("by ovsdb-tool {version}"), "by ovsdb-tool VERSION")
    });
    without_date(words)
}

/// `record 3: DATE "comment"`
fn without_date(line: String) -> String {
    let Some((record, rest)) = line.split_once(": 20") else { return line };
    let is_record = record.strip_prefix("record ").is_some_and(|n| n.parse::<u64>().is_ok());
    let length = "26-11-22 00:45:02.816".len();
    match rest.get(length..) {
        // Dates of the past are from the test's own records.
        Some(rest) if is_record && !line.contains(": 2014") => format!("{record}: DATE{rest}"),
        _ => line,
    }
}

/// `prev_servers: 1a2b("unix:x")`, and a date.
fn without_ids(line: &str) -> String {
    match (line.split_once("prev_servers: "), line.split_once(" \"created from")) {
        (Some((_, servers)), _) => servers.get(4..).unwrap_or_default().to_owned(),
        (_, Some((_, file))) => file.to_owned(),
        _ if line.starts_with("  table ") => line.split('(').next().unwrap_or(line).to_owned(),
        _ => line.to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// Tables, rows and columns of a shown record in order: the reference has them in that of a hash.
fn canonical(text: &str) -> String {
    let mut blocks: Vec<Vec<&str>> = Vec::new();
    let mut result = Vec::new();
    let flush = |blocks: &mut Vec<Vec<&str>>, result: &mut Vec<String>| {
        for block in blocks.iter_mut() {
            block[1..].sort_unstable();
        }
        blocks.sort_unstable();
        result.extend(blocks.drain(..).flatten().map(str::to_owned));
    };
    for line in text.lines() {
        match (line.starts_with("  table "), line.starts_with("    "), blocks.last_mut()) {
            (true, ..) => blocks.push(vec![line]),
            (false, true, Some(block)) => block.push(line),
            _ => {
                flush(&mut blocks, &mut result);
                result.push(line.to_owned());
            }
        }
    }
    flush(&mut blocks, &mut result);
    result.join("\n")
}
