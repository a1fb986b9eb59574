//! Development tasks: `cargo xtask <task>`.
//!
//! - `test`: all tests, in minutes, on a fresh machine.
//! - `soak`: what takes longer and a change must pass as well.
//! - `tidy`: rules of the tree that the compiler does not check (see `STYLE.md`).
//! - `ci`: formatting, lints, documentation, licences, tidy.
//! - `fuzz`: every parser against libFuzzer.
//! - `instructions`: instructions and system calls of a transaction against a baseline.
//! - `miri`, `tsan`: snapshot readers on other threads, under Miri and the thread sanitizer.
//! - `sim`: one seed of the simulator of clusters again, made short.
//! - `planted`: faults in a copy of the tree, which the simulators must find.
//! - `shrunk`: the simulators with limits cut down in a copy of the tree.
//! - `ovn`: the OVN scenario alone, against Weir or against the reference server.

mod background;
mod checks;
mod clusters;
mod copied;
mod events;
mod fuzz;
mod instructions;
mod ovn;
mod planted;
mod provide;
mod runner;
mod sanitize;
mod shrunk;
mod step;
mod suite;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test [--no-install]   install what is missing where possible, then run all tests
  soak [--no-install]   what takes longer: instructions, events, simulated clusters, thread sanitizer, fuzzing
  ci [--no-install]     fmt, clippy, doc, deny, tidy
  run-tests [WORD...]   the tests whose names contain a word, each with a time limit
  tidy [--arrows CRATE | --docs]
                        rules of the tree, see STYLE.md; or who names whom in a crate, or the
                        doc comments that do not stand alone
  instructions [--update]
                        instructions and system calls of a transaction, under valgrind
  fuzz [SECONDS] [TARGET...] | --keep
                        fuzz every target, or merge what was found into the corpus
  miri [SEEDS]          threads that read snapshots, in Miri, in so many orders of events
  tsan                  the same under the thread sanitizer
  sim SEED              run a seed of simulated clusters again, make it short if it fails, and show it
  planted [NAME...]     plant faults in a copy of the tree, and have the simulators find them
  shrunk [SECONDS]      run new seeds of the simulators in a copy of the tree whose limits are some bytes
  ovn [ARG...]          the OVN scenario alone; see tests/ovn/run --help
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = root();
    let result = match words.as_slice() {
        ["tidy"] => tidy::run(&root),
        ["tidy", "--arrows", name] => tidy::show_arrows(&root, name),
        ["tidy", "--docs"] => tidy::show_docs(&root),
        ["ci"] => checks::run(&root, true),
        ["ci", "--no-install"] => checks::run(&root, false),
        ["test"] => suite::run(&root, true),
        ["test", "--no-install"] => suite::run(&root, false),
        ["soak"] => suite::soak(&root, true),
        ["soak", "--no-install"] => suite::soak(&root, false),
        [runner::TASK, rest @ ..] => runner::run(&root, rest),
        ["instructions"] => instructions::run(&root, false),
        ["instructions", "--update"] => instructions::run(&root, true),
        ["fuzz", rest @ ..] => fuzz::run(&root, rest),
        ["miri"] => sanitize::run_miri(&root, 1),
        ["miri", seeds] if seeds.parse::<u32>().is_ok_and(|seeds| seeds > 0) => {
            sanitize::run_miri(&root, seeds.parse().unwrap_or(1))
        }
        ["tsan"] => sanitize::run_tsan(&root),
        ["sim", seed] if seed.parse::<u64>().is_ok() => {
            clusters::replay(&root, seed.parse().unwrap_or(1))
        }
        ["planted", names @ ..] => planted::run(&root, names),
        ["shrunk"] => shrunk::run(&root, shrunk::SECONDS),
        ["shrunk", seconds] if seconds.parse::<u64>().is_ok() => {
            shrunk::run(&root, seconds.parse().unwrap_or(shrunk::SECONDS))
        }
        ["ovn", rest @ ..] => ovn::run(&root, rest),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: the parent of this package.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is inside a folder").to_path_buf()
}
