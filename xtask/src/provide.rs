//! What the tests want on the machine, installed where that is allowed.
//!
//! Nothing here is required: what is missing is named, and the tests that
//! want it are skipped with a line that says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::sanitize;
use crate::step::{Outcome, passes};
use crate::tools::{self, cargo, has, program};

/// Debian packages, and what each is for.
const DEBIAN: &[(&str, &str)] = &[
    ("openvswitch-common", "the reference server and the stock clients"),
    ("openvswitch-switch", "ovs-vswitchd, ovs-vsctl, ovs-ctl"),
    ("ovn-common", "ovn-nbctl, ovn-sbctl and OVN's schemas"),
    ("ovn-central", "ovn-northd and ovn-ctl"),
    ("python3-openvswitch", "the stock Python client"),
    ("etcd-client", "etcdctl, for the key-value front end"),
    ("strace", "counts the system calls of a transaction"),
    ("valgrind", "counts the instructions of a transaction"),
    ("tini", "reaps the daemons of a test that was stopped"),
];

/// Cargo's own additions: the program, the features that it does without here,
/// and what is done when it cannot be had.
const CARGO: &[(&str, &[&str], &str)] = &[
    // Without its own updater, which is half of what it compiles.
    (
        "cargo-nextest",
        &["--no-default-features", "--features", "default-no-update"],
        "the tests run under plain `cargo test`",
    ),
    ("cargo-deny", &[], "licences and sources are not checked"),
];

/// Installs the missing Debian packages where we are root and have apt.
pub(crate) fn debian_packages(root: &Path, may_install: bool) -> Result<Outcome> {
    if !has(root, "apt-get") {
        return Ok(Outcome::Skipped(format!("no apt-get here; by hand: {}", names(&missing()))));
    }
    let missing = missing();
    if missing.is_empty() {
        println!("    all present");
        return Ok(Outcome::Passed);
    }
    for (package, purpose) in &missing {
        println!("    missing: {package} ({purpose})");
    }
    if !may_install {
        return Ok(Outcome::Skipped("--no-install".into()));
    }
    if !is_root() {
        let by_hand = format!("not root; by hand: apt-get install {}", names(&missing));
        return Ok(Outcome::Skipped(by_hand));
    }
    let mut install = Command::new("sh");
    install.arg(root.join("xtask/debian-packages.sh"));
    install.args(missing.iter().map(|(package, _)| package));
    match passes(&mut install)? {
        Outcome::Passed => Ok(Outcome::Passed),
        _ => Ok(Outcome::Skipped("apt-get could not install them (no network?)".into())),
    }
}

/// Builds cargo's additions where cargo can fetch them, into the build folder.
pub(crate) fn cargo_tools(root: &Path, may_install: bool) -> Result<Outcome> {
    let mut lacking = Vec::new();
    for (name, features, otherwise) in CARGO {
        if has(root, name) {
            continue;
        }
        println!("    missing: {name}");
        let installed = may_install
            && matches!(passes(&mut install(root, name, features))?, Outcome::Passed)
            && has(root, name);
        if !installed {
            lacking.push(format!("{name}: {otherwise}"));
        }
    }
    // A gigabyte that nobody needs any more; a folder that is not there is as good.
    let _ = std::fs::remove_dir_all(build_folder(root));
    if lacking.is_empty() {
        return Ok(Outcome::Passed);
    }
    let why = if may_install { "cargo could not install" } else { "--no-install, missing" };
    Ok(Outcome::Skipped(format!("{why} {}", lacking.join("; "))))
}

/// Has rustup install the compiler of Miri and the thread sanitizer.
pub(crate) fn nightly(root: &Path, may_install: bool) -> Result<Outcome> {
    let Some(why) = sanitize::missing_components(root) else {
        println!("    all present");
        return Ok(Outcome::Passed);
    };
    if !may_install {
        return Ok(Outcome::Skipped(format!("--no-install, {why}")));
    }
    if !has(root, "rustup") {
        return Ok(Outcome::Skipped(why));
    }
    let mut install = program(root, "rustup");
    install.args(["toolchain", "install", sanitize::TOOLCHAIN, "--profile", "minimal"]);
    install.args(["--component", "miri,rust-src", "--no-self-update"]);
    Ok(match passes(&mut install)? {
        Outcome::Passed => Outcome::Passed,
        _ => Outcome::Skipped(format!("rustup could not install it (no network?): {why}")),
    })
}

/// A build that is quick rather than quick to run: these tools run for seconds.
fn install(root: &Path, name: &str, features: &[&str]) -> Command {
    let mut install = cargo(root);
    install.args(["install", "--locked", "--quiet", "--debug", "--root"]);
    install.arg(tools::folder(root)).arg(name).args(features);
    // One folder for all of them, so that what they share is compiled once.
    install.env("CARGO_TARGET_DIR", build_folder(root));
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    install
}

fn build_folder(root: &Path) -> PathBuf {
    tools::folder(root).join("build")
}

fn missing() -> Vec<(&'static str, &'static str)> {
    DEBIAN.iter().copied().filter(|(package, _)| !is_installed(package)).collect()
}

fn names(packages: &[(&str, &str)]) -> String {
    packages.iter().map(|(package, _)| *package).collect::<Vec<_>>().join(" ")
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}
