//! `cargo xtask test`: all tests, in minutes; and `cargo xtask soak`: what takes longer.

use std::path::Path;

use anyhow::Result;

use crate::step::{Outcome, Steps, passes};
use crate::tools::{cargo, has, program};
use crate::{clusters, events, fuzz, instructions, ovn, planted, provide, runner, sanitize, tools};

/// All tests, even after some failed; true when all passed. Nothing but the tests is compiled.
pub(crate) fn run(root: &Path, may_install: bool) -> Result<bool> {
    // Asked for now: the build may put another file in its place.
    let this = std::env::current_exe()?;
    let mut steps = Steps::default();
    steps
        .add("Debian packages", || provide::debian_packages(root, provide::FOR_TESTS, may_install));
    steps.add("build", || passes(&mut runner::build(root)));
    steps.add("tests", || tests(root, &this));
    steps.add("doctests", || passes(cargo(root).args(["test", "--workspace", "--doc"])));
    steps.add("OVN scenario", || ovn::scenario(root));
    Ok(steps.run())
}

/// What wants other compilers, other profiles or a minute for each parser.
pub(crate) fn soak(root: &Path, may_install: bool) -> Result<bool> {
    let mut steps = Steps::default();
    steps.add("Debian packages", || provide::debian_packages(root, provide::FOR_SOAK, may_install));
    steps.add("nightly toolchain", || provide::nightly(root, may_install));
    // What waits for a download or for one processor leaves the other one to these.
    let clusters = clusters::begin(root)?;
    let building = fuzz::begin_build(root);
    steps.add("instructions", || instructions::compare(root, false));
    steps.add("server events", || events::step(root));
    steps.add("thread sanitizer", || sanitize::tsan(root));
    steps.add("clusters in the simulator", || clusters.finish());
    steps.add("faults in the simulator", || planted::step(root));
    steps.add("fuzzing", || fuzz::step(root, building));
    Ok(steps.run())
}

/// The tests alone, which have been built.
fn tests(root: &Path, this: &Path) -> Result<Outcome> {
    let mut tests = if has(root, "cargo-nextest") {
        let mut nextest = cargo(root);
        nextest.args(["nextest", "run", "--no-fail-fast"]).args(runner::TARGETS);
        nextest
    } else {
        let mut runner = program(root, this);
        runner.arg(runner::TASK);
        runner
    };
    if has(root, "tini") {
        let mut tini = program(root, "tini");
        tini.args(["-s", "--"]).arg(tests.get_program()).args(tests.get_args());
        tests = tini;
    } else {
        println!("    tini is missing: a test that is stopped may leave its daemons behind");
    }
    // It has been built; no test has to see to that.
    passes(tests.env("WEIR_BIN", tools::weir(root)))
}
