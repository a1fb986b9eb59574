//! The OVN scenario: OVN's own programs on Weir and on the reference server.
//!
//! The scenario itself is `tests/ovn/run`; it needs Python 3 and the packages
//! of OVN and Open vSwitch, nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{Outcome, passes};
use crate::tools::{self, cargo, has};

/// Programs that the scenario cannot do without.
const NEEDED: &[&str] = &[
    "python3",
    "ovsdb-server",
    "ovsdb-tool",
    "ovs-vswitchd",
    "ovs-vsctl",
    "ovn-nbctl",
    "ovn-northd",
];

/// As a step of `cargo xtask test`: skipped where OVN is not installed.
pub(crate) fn scenario(root: &Path) -> Result<Outcome> {
    if let Some(program) = NEEDED.iter().find(|program| !has(root, program)) {
        return Ok(Outcome::Skipped(format!("{program} is not installed")));
    }
    let Outcome::Passed = passes(cargo(root).args(["build", "--package", "weir-cli"]))? else {
        return Ok(Outcome::Failed);
    };
    passes(script(root).arg("--weir").arg(weir(root)?))
}

/// As a task of its own: all arguments go to the script.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<bool> {
    if args.is_empty() {
        return Ok(!matches!(scenario(root)?, Outcome::Failed));
    }
    Ok(matches!(passes(script(root).args(args))?, Outcome::Passed))
}

fn script(root: &Path) -> Command {
    let mut command = tools::program(root, "python3");
    command.arg(root.join("tests/ovn/run"));
    command
}

/// The program as the tests built it.
fn weir(root: &Path) -> Result<PathBuf> {
    let program = tools::target(root).join("debug/weir");
    program.canonicalize().with_context(|| program.display().to_string())
}
