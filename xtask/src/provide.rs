//! What the tests want on the machine, installed where that is allowed.
//!
//! Nothing here is required: what is missing is named, and the tests that
//! want it are skipped with a line that says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::background::Background;
use crate::sanitize;
use crate::step::{Outcome, passes};
use crate::tools::{self, cargo, has, program};

/// A Debian package, and what it is for.
type Package = (&'static str, &'static str);

/// What `cargo xtask test` wants.
pub(crate) const FOR_TESTS: &[Package] = &[
    ("openvswitch-common", "the reference server and the stock clients"),
    ("openvswitch-switch", "ovs-vswitchd, ovs-vsctl, ovs-ctl"),
    ("ovn-common", "ovn-nbctl, ovn-sbctl and OVN's schemas"),
    ("ovn-central", "ovn-northd and ovn-ctl"),
    ("ovn-host", "ovn-controller"),
    ("python3-openvswitch", "the stock Python client"),
    ("etcd-client", "etcdctl, for the key-value front end"),
    ("iproute2", "hosts for members of clusters, in network namespaces"),
    ("tini", "reaps the daemons of a test that was stopped"),
];

/// What `cargo xtask soak` wants.
pub(crate) const FOR_SOAK: &[Package] = &[
    ("strace", "counts the system calls of a transaction"),
    ("valgrind", "counts the instructions of a transaction"),
];

/// The addition to cargo that the checks cannot do without.
const DENY: &str = "cargo-deny";

/// Installs the missing Debian packages where we are root and have apt.
pub(crate) fn debian_packages(
    root: &Path,
    packages: &[Package],
    may_install: bool,
) -> Result<Outcome> {
    let missing = missing(packages);
    if !has(root, "apt-get") {
        return Ok(Outcome::Skipped(format!("no apt-get here; by hand: {}", names(&missing))));
    }
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

/// Begins to build `cargo-deny` beside other checks, if it is missing.
pub(crate) fn begin_cargo_deny(root: &Path, may_install: bool) -> Background {
    if !may_install || has(root, DENY) {
        return Background::none();
    }
    Background::begin(root, DENY, &install(root, DENY))
}

/// Builds `cargo-deny` where cargo can fetch it, into the build folder, if `building` has not.
pub(crate) fn cargo_deny(root: &Path, building: Background, may_install: bool) -> Result<Outcome> {
    building.wait();
    let mut outcome = Outcome::Passed;
    if !has(root, DENY) {
        if !may_install {
            return Ok(Outcome::Skipped(format!("--no-install, missing {DENY}")));
        }
        outcome = passes(&mut install(root, DENY))?;
    }
    // A gigabyte that nobody needs any more; a folder that is not there is as good.
    let _ = std::fs::remove_dir_all(build_folder(root));
    Ok(match outcome {
        Outcome::Passed => Outcome::Passed,
        _ => Outcome::Skipped(format!("cargo could not install {DENY} (no network?)")),
    })
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

/// A build that is quick rather than quick to run: the tool runs for seconds.
fn install(root: &Path, name: &str) -> Command {
    let mut install = cargo(root);
    install.args(["install", "--locked", "--quiet", "--debug", "--root"]);
    install.arg(tools::folder(root)).arg(name);
    install.env("CARGO_TARGET_DIR", build_folder(root));
    install.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    install
}

fn build_folder(root: &Path) -> PathBuf {
    tools::folder(root).join("build")
}

fn missing(packages: &[Package]) -> Vec<Package> {
    packages.iter().copied().filter(|(package, _)| !is_installed(package)).collect()
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
