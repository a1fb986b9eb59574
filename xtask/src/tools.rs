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

/// Builds `weir` and its load tests as the tests have them: nothing is built again after those. The whole
/// workspace is chosen, and an example for what only tests depend on: other choices have other
/// features of dependencies.
pub(crate) fn build_programs(root: &Path) -> Command {
    let mut build = cargo(root);
    build.args(["build", "--workspace", "--bin", "weir", "--bin", "weir-bench"]);
    build.args(["--example", "weir-bench"]);
    build
}

/// The program `weir`, as the tests have built it.
pub(crate) fn weir(root: &Path) -> PathBuf {
    target(root).join("debug/weir")
}
