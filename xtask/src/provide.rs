//! What the tests want on the machine, installed where that is allowed.
//!
//! Nothing here is required: what is missing is named, and the tests that
//! want it are skipped with a line that says so.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::step::{Outcome, answers, passes};

/// Debian packages, and what each is for.
const DEBIAN: &[(&str, &str)] = &[
    ("openvswitch-common", "the reference server and the stock clients"),
    ("openvswitch-switch", "ovs-vswitchd, ovs-vsctl, ovs-ctl"),
    ("ovn-common", "ovn-nbctl, ovn-sbctl and OVN's schemas"),
    ("ovn-central", "ovn-northd and ovn-ctl"),
    ("python3-openvswitch", "the stock Python client"),
    ("etcd-client", "etcdctl, for the key-value front end"),
    ("tini", "reaps the daemons of a test that was stopped"),
];

/// Cargo's own additions, by program and package.
const CARGO: &[&str] = &["cargo-nextest", "cargo-deny"];

/// Installs the missing Debian packages where we are root and have apt.
pub(crate) fn debian_packages(root: &Path, may_install: bool) -> Result<Outcome> {
    if !answers("apt-get", "--version") {
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

/// Installs cargo's additions where cargo can.
pub(crate) fn cargo_tools(root: &Path, may_install: bool) -> Result<Outcome> {
    let missing: Vec<&str> =
        CARGO.iter().copied().filter(|tool| !answers(tool, "--version")).collect();
    if missing.is_empty() {
        println!("    all present");
        return Ok(Outcome::Passed);
    }
    if !may_install {
        return Ok(Outcome::Skipped(format!("--no-install; missing: {}", missing.join(" "))));
    }
    let mut install = crate::checks::cargo(root);
    install.args(["install", "--locked"]).args(&missing);
    match passes(&mut install)? {
        Outcome::Passed => Ok(Outcome::Passed),
        _ => Ok(Outcome::Skipped(format!("cargo could not install {}", missing.join(" ")))),
    }
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
