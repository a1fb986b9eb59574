//! `cargo xtask test`: everything that a change must pass.

use std::path::Path;

use anyhow::Result;

use crate::step::{Outcome, Steps, passes};
use crate::tools::{cargo, has, program};
use crate::{fuzz, instructions, ovn, provide, sanitize};

/// Runs all tests, even after some failed; true when all passed.
pub(crate) fn run(root: &Path, may_install: bool) -> Result<bool> {
    let mut steps = Steps::default();
    steps.run("Debian packages", || provide::debian_packages(root, may_install));
    steps.run("cargo tools", || provide::cargo_tools(root, may_install));
    steps.run("nightly toolchain", || provide::nightly(root, may_install));
    steps.run("build", || passes(cargo(root).args(["build", "--workspace", "--all-targets"])));
    // Tests wait a lot; the fuzzer's build has what they leave.
    let building = fuzz::Building::begin(root);
    steps.run("tests", || tests(root));
    steps.run("doctests", || passes(cargo(root).args(["test", "--workspace", "--doc"])));
    steps.run("OVN scenario", || ovn::scenario(root));
    steps.run("instructions", || instructions::compare(root, false));
    steps.run("thread sanitizer", || sanitize::tsan(root));
    steps.run("fuzzing", || fuzz::step(root, building));
    Ok(steps.finish())
}

fn tests(root: &Path) -> Result<Outcome> {
    let runner: &[&str] = if has(root, "cargo-nextest") {
        &["nextest", "run", "--workspace", "--no-fail-fast"]
    } else {
        println!("    cargo-nextest is missing: plain `cargo test`, without time limits");
        &["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]
    };
    let cargo = cargo(root);
    let mut command = if has(root, "tini") {
        let mut tini = program(root, "tini");
        tini.args(["-s", "--"]).arg(cargo.get_program());
        tini
    } else {
        println!("    tini is missing: a test that is stopped may leave its daemons behind");
        cargo
    };
    passes(command.args(runner))
}
