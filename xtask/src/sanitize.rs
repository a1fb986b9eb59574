//! Snapshot readers on other threads under two tools that see what no assertion does, both of the
//! nightly compiler:
//!
//! - `cargo xtask miri [SEEDS]` interprets the scenarios, smaller ones: accesses that nothing
//!   orders, memory that is gone, and what weak memory may show. Each seed is another order of
//!   events.
//! - `cargo xtask tsan` runs them in full under the thread sanitizer, the standard library
//!   instrumented as well: it does not know the fences inside `Arc` otherwise.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::step::{Outcome, passes};
use crate::tools::{has, program, target};

/// The compiler of both tools.
pub(crate) const TOOLCHAIN: &str = "nightly";

/// What of the tests they run.
const TESTS: [&str; 6] = ["-p", "weir-data", "-p", "weir-engine", "--test", "readers"];

/// The only platform that servers run on and that the tools are tried on.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Miri as a task of its own: `[SEEDS]`.
pub(crate) fn run_miri(root: &Path, seeds: u32) -> Result<bool> {
    Ok(shown(miri(root, seeds)?))
}

/// The thread sanitizer as a task of its own.
pub(crate) fn run_tsan(root: &Path) -> Result<bool> {
    Ok(shown(tsan(root)?))
}

fn shown(outcome: Outcome) -> bool {
    if let Outcome::Skipped(why) = &outcome {
        println!("skipped: {why}");
    }
    !matches!(outcome, Outcome::Failed)
}

/// The scenarios in Miri, in as many orders of events as there are seeds. Not a step of the soak: it
/// takes minutes on a busy machine.
fn miri(root: &Path, seeds: u32) -> Result<Outcome> {
    if let Some(why) = missing(root) {
        return Ok(Outcome::Skipped(why));
    }
    let mut command = nightly(root);
    command.args(["cargo", "miri", "test"]).args(TESTS);
    command.env("CARGO_TARGET_DIR", target(root).join("miri"));
    passes(command.env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds}")))
}

/// The scenarios under the thread sanitizer.
pub(crate) fn tsan(root: &Path) -> Result<Outcome> {
    if let Some(why) = missing(root) {
        return Ok(Outcome::Skipped(why));
    }
    let mut command = nightly(root);
    command.args(["cargo", "test", "-Zbuild-std", "--target", PLATFORM]).args(TESTS);
    command.env("CARGO_TARGET_DIR", target(root).join("tsan"));
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", "-Zsanitizer=thread");
    let suppressions = root.join("xtask/tsan.suppressions");
    let options = format!("halt_on_error=1:suppressions={}", suppressions.display());
    passes(command.env("TSAN_OPTIONS", options))
}

/// A program of the nightly toolchain, to be named.
fn nightly(root: &Path) -> Command {
    let mut command = program(root, "rustup");
    command.args(["run", TOOLCHAIN]);
    command
}

/// Why the tools cannot run here, if they cannot.
fn missing(root: &Path) -> Option<String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Some(format!("the tools are tried on {PLATFORM}"));
    }
    if let Some(why) = missing_components(root) {
        return Some(why);
    }
    // Both build the standard library, which cargo may have to fetch dependencies for.
    let mut fetch = nightly(root);
    fetch.args(["cargo", "fetch", "--quiet", "--locked", "--manifest-path"]);
    fetch.arg(sources(root)?.join("Cargo.toml"));
    let fetched = fetch.output().is_ok_and(|output| output.status.success());
    (!fetched).then(|| "the standard library's dependencies cannot be fetched".to_owned())
}

/// What of the toolchain is not installed, if anything is not.
pub(crate) fn missing_components(root: &Path) -> Option<String> {
    if !has(root, "rustup") {
        return Some("rustup is not installed".to_owned());
    }
    let runs = nightly(root).args(["cargo", "miri", "--version"]).output();
    if !runs.is_ok_and(|output| output.status.success()) {
        return Some(format!("the {TOOLCHAIN} toolchain is not installed, or has no miri"));
    }
    sources(root).is_none().then(|| format!("the {TOOLCHAIN} toolchain has no rust-src"))
}

/// The standard library's sources.
fn sources(root: &Path) -> Option<PathBuf> {
    let output = nightly(root).args(["rustc", "--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
    library.join("Cargo.lock").exists().then_some(library)
}
