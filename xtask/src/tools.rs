//! Programs that tasks call: cargo, its additions, and what the machine has.
//!
//! Additions that a task installs live in the build folder, not in the home
//! of whoever runs it, so that folder comes first in the search path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The build folder, as cargo chooses it.
pub(crate) fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Where `cargo install --root` puts additions of ours.
pub(crate) fn folder(root: &Path) -> PathBuf {
    target(root).join("tools")
}

/// A program, started in `root`.
pub(crate) fn program(root: &Path, name: impl Into<OsString>) -> Command {
    let mut path = vec![folder(root).join("bin")];
    if let Some(rest) = std::env::var_os("PATH") {
        path.extend(std::env::split_paths(&rest));
    }
    let mut command = Command::new(name.into());
    if let Ok(path) = std::env::join_paths(path) {
        command.env("PATH", path);
    }
    command.current_dir(root);
    command
}

/// The cargo that runs us.
pub(crate) fn cargo(root: &Path) -> Command {
    program(root, std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whether a program is there and works.
pub(crate) fn has(root: &Path, name: &str) -> bool {
    program(root, name).arg("--version").output().is_ok_and(|output| output.status.success())
}
