//! Members whose disk is slow: `strace` starts them and holds up each fdatasync. It sees no other
//! system call (`--seccomp-bpf`), and is not their parent (`-D`), so that what is measured is
//! theirs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{AT_LEADER, Scene, ports};
use crate::Error;
use crate::error::fail;
use crate::peer::Peer;

/// How long each fdatasync is held up, in milliseconds.
const DELAYS_MS: [u32; 2] = [1, 5];
/// Rows are so many times fewer.
const FEWER: usize = 30;
const FEWER_OF_ONE: usize = 300;
const STRACE: &str = "strace";

/// Many writers and one, at members that write slowly.
pub(super) fn run(scene: &mut Scene<'_>) -> Result<(), Error> {
    if Command::new(STRACE).arg("--version").output().is_err() {
        scene.bench.progress.note("  no strace here: fdatasync is not slowed, nothing is measured");
        return Ok(());
    }
    for delay in DELAYS_MS {
        let wrapped = Wrapped::new(scene, delay)?;
        let mut slow = scene.of(&wrapped.peer);
        let disk = format!("fdatasync {delay} ms slower");
        for (rows, writers) in [(FEWER, ports::WRITERS), (FEWER_OF_ONE, 1)] {
            let config = ports::config(&slow, (scene.rows / rows).max(20), writers);
            let figures = ports::at_cluster(&slow, &config, true)?;
            let who = match writers {
                1 => AT_LEADER.to_owned(),
                many => format!("{many} writers"),
            };
            slow.figures.append(figures.within(&format!("{disk}, {who}")));
        }
        let figures = std::mem::take(&mut slow.figures);
        scene.figures.append(figures);
    }
    Ok(())
}

/// A program that starts the server so; it is called as the server is.
struct Wrapped {
    dir: PathBuf,
    peer: Peer,
}

impl Wrapped {
    fn new(scene: &Scene<'_>, delay: u32) -> Result<Self, Error> {
        let Some(program) = scene.peer.program() else { fail!("cluster: it wants --peer") };
        let dir = scene.bench.scratch(&format!("slow-{delay}"));
        let made = make(&dir, program, delay);
        let dir = dir.canonicalize().map_err(|e| Error::io("finding", &dir, e))?;
        let wrapped = Self { peer: scene.peer.with_program(dir.join(NAME)), dir };
        made.map(|()| wrapped)
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What a server is called.
const NAME: &str = "ovsdb-server";

/// Makes the folder with the script, and with the tool beside it.
fn make(dir: &Path, program: &Path, delay: u32) -> Result<(), Error> {
    let to_error = |e| Error::io("making", dir, e);
    let real = dir.join("real");
    fs::create_dir_all(&real).map_err(to_error)?;
    let real = real.canonicalize().map_err(to_error)?;
    symlink(program, real.join(NAME)).map_err(to_error)?;
    if program.file_name().is_some_and(|name| name != NAME) {
        // It is all programs, by its links' names.
        symlink(program, dir.join("ovsdb-tool")).map_err(to_error)?;
        symlink(program, dir.join("ovsdb-client")).map_err(to_error)?;
    }
    let script = dir.join(NAME);
    let text = format!(
        "#!/bin/sh\nexec {STRACE} -D -f --seccomp-bpf -qq -e trace=fsync,fdatasync \
         -e inject=fsync,fdatasync:delay_enter={}000 -o /dev/null '{}' \"$@\"\n",
        delay,
        real.join(NAME).display()
    );
    fs::write(&script, text).map_err(to_error)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(to_error)
}
