//! `cargo xtask ci`: what must hold beside the tests.

use std::path::Path;

use anyhow::Result;

use crate::step::{Outcome, Steps, passes};
use crate::tools::{cargo, has, program};
use crate::{fuzz, provide, tidy};

/// Seconds given to fetch the list of advisories, the only step that needs a network.
const ADVISORY_FETCH_SECONDS: &str = "60";

/// Runs every check, even after one failed; true when all passed.
pub(crate) fn run(root: &Path, may_install: bool) -> Result<bool> {
    let mut steps = Steps::default();
    let building = provide::begin_cargo_deny(root, may_install);
    steps.add("fmt", || passes(cargo(root).args(["fmt", "--all", "--check"])));
    steps.add("clippy", || {
        let lint =
            ["clippy", "--workspace", "--all-targets", "--keep-going", "--", "-D", "warnings"];
        passes(cargo(root).args(lint))
    });
    steps.add("fuzz targets", || fuzz::check(root));
    steps.add("doc", || {
        let mut doc = cargo(root);
        doc.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--keep-going"]);
        // Private items are documented too, so links to them lead somewhere.
        let flags = "-D warnings -A rustdoc::private_intra_doc_links";
        passes(doc.env("RUSTDOCFLAGS", flags))
    });
    steps.add("cargo-deny", || provide::cargo_deny(root, building, may_install));
    steps.add("deny: licences, bans, sources", || deny(root));
    steps.add("deny: advisories", || advisories(root));
    steps.add("tidy", || Ok(if tidy::run(root)? { Outcome::Passed } else { Outcome::Failed }));
    Ok(steps.run())
}

fn deny(root: &Path) -> Result<Outcome> {
    if !has(root, "cargo-deny") {
        return Ok(Outcome::Skipped("cargo-deny is not installed".into()));
    }
    // cargo-deny looks at the dependencies of every platform, more than a build has fetched.
    if !cargo(root).args(["fetch", "--locked"]).status()?.success() {
        return Ok(Outcome::Skipped("the dependencies cannot be fetched from here".into()));
    }
    let mut check = cargo(root);
    check.args(["deny", "--offline", "--workspace", "check", "--hide-inclusion-graph"]);
    passes(check.args(["licenses", "bans", "sources"]))
}

/// Advisories need their database; where it cannot be fetched the check says so.
fn advisories(root: &Path) -> Result<Outcome> {
    if !has(root, "cargo-deny") {
        return Ok(Outcome::Skipped("cargo-deny is not installed".into()));
    }
    let fetched = program(root, "timeout")
        .args([ADVISORY_FETCH_SECONDS, "cargo", "deny", "fetch", "db"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()?;
    if !fetched.status.success() {
        return Ok(Outcome::Skipped("the advisory database cannot be fetched from here".into()));
    }
    passes(cargo(root).args(["deny", "--offline", "--workspace", "check", "advisories"]))
}
