//! The OVN scenario: OVN's own programs on Weir and on the reference server.
//!
//! The scenario itself is `tests/ovn/run`; it needs Python 3 and the packages
//! of OVN and Open vSwitch, nothing else.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{Outcome, passes};
use crate::tools::{self, has};

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
    let Outcome::Passed = passes(&mut tools::build_programs(root))? else {
        return Ok(Outcome::Failed);
    };
    let weir = tools::weir(root);
    let weir = weir.canonicalize().with_context(|| weir.display().to_string())?;
    passes(script(root).arg("--weir").arg(weir))
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
