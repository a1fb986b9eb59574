//! `cargo xtask planted`: faults that somebody could make are planted in a copy of the tree, and the
//! simulators must find each.
//!
//! The faults are pieces of text (`faults`), so that nothing of them is in the product, however it is
//! built. All are in one copy, each behind a switch (the variable `WEIR_PLANTED`), so that it is built
//! once.

mod faults;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::step::{Outcome, show};
use crate::tools::{cargo, target};
use faults::{FAULTS, Fault, Place, UNCHECKED};

/// So many seeds must find a fault.
const SEEDS: u64 = 1000;

/// The tests that the copy is built for.
const TARGETS: [&str; 6] = ["test", "--workspace", "--test", "simulation", "--test", "sources"];

/// A test program of the copy.
struct Program {
    path: PathBuf,
    /// The names of its tests, as it says them.
    tests: String,
}

/// A seed that has found a fault.
struct Finding {
    seed: u64,
    /// What it said.
    why: String,
}

/// Plants the faults, or those of these names, and runs the simulators until each is found; true if all
/// are, by whom it should be.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    let begun = Instant::now();
    let copy = copy(root)?;
    let programs = build(root, &copy)?;
    println!("built in {} s", begun.elapsed().as_secs());
    let is_wanted = |fault: &&Fault| names.is_empty() || names.contains(&fault.name);
    let mut are_found = true;
    for fault in FAULTS.iter().filter(is_wanted) {
        let found = find(&programs, fault)?;
        are_found &= found.is_ok();
        let (Ok(said) | Err(said)) = found;
        println!("{:<36} {said}", fault.name);
    }
    println!("{} s in all", begun.elapsed().as_secs());
    Ok(are_found)
}

/// All of them, as a step of a task; not in CI, for the copy is built from nothing there.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    if std::env::var_os("CI").is_some() {
        return Ok(Outcome::Skipped("in CI; by hand: cargo xtask planted".into()));
    }
    Ok(if run(root, &[])? { Outcome::Passed } else { Outcome::Failed })
}

/// Builds the tests of the copy: the programs, and which tests each has.
fn build(root: &Path, copy: &Path) -> Result<Vec<Program>> {
    let mut build = in_copy(root, copy);
    build.args(TARGETS).args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let built = build.stderr(Stdio::inherit()).output().with_context(|| show(&build))?;
    ensure!(built.status.success(), "the copy in {} cannot be built", copy.display());
    let said = String::from_utf8(built.stdout)?;
    let path = |line: &str| {
        let (_, path) = line.split_once(r#""executable":""#)?;
        path.split('"').next().map(PathBuf::from)
    };
    let with_tests = |path: PathBuf| -> Result<Program> {
        let listed = Command::new(&path).arg("--list").output()?;
        Ok(Program { path, tests: String::from_utf8(listed.stdout)? })
    };
    said.lines().filter_map(path).map(with_tests).collect()
}

/// What is found of a fault, or how it is not.
fn find(programs: &[Program], fault: &Fault) -> Result<Result<String, String>> {
    let begun = Instant::now();
    let took = || format!("{} s", begun.elapsed().as_secs());
    let Some(first) = first_finding(programs, fault, 1..=SEEDS)? else {
        return Ok(Err(format!("NOT FOUND in {SEEDS} seeds, {}", took())));
    };
    let first_seed = first.seed;
    let said = format!("seed {first_seed}: {}", first.why);
    let by = fault.found_by;
    let kind = if fault.alone { "only " } else { "" };
    let mut next = Some(first);
    while let Some(finding) = next {
        let Finding { seed, why } = &finding;
        if is_meant(programs, fault, &finding)? {
            let how = if *seed == first_seed { String::new() } else { format!(": {why}") };
            return Ok(Ok(format!("{said}; {kind}{by} in seed {seed}{how}; {}", took())));
        }
        next = first_finding(programs, fault, seed + 1..=SEEDS)?;
    }
    Ok(Err(format!("NEVER SEEN BY {kind}{by}: {said}; {}", took())))
}

/// Whether a fault was found by whom it should be.
fn is_meant(programs: &[Program], fault: &Fault, finding: &Finding) -> Result<bool> {
    let Finding { seed, why } = finding;
    if !fault.alone {
        return Ok(why.contains(fault.found_by));
    }
    // Once more, in a process that has run no other seed.
    let is_it = |again: Option<Finding>| again.is_some_and(|again| again.why == *why);
    Ok(why.starts_with(fault.found_by)
        && is_it(first_finding(programs, fault, *seed..=*seed)?)
        && passes_unchecked(programs, fault, *seed)?)
}

/// The first of these seeds that finds a fault, and what is said then.
fn first_finding(
    programs: &[Program],
    fault: &Fault,
    seeds: RangeInclusive<u64>,
) -> Result<Option<Finding>> {
    let mut test = test(programs, fault, &seeds)?;
    let output = test.output().with_context(|| show(&test))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let seed = said.lines().find_map(|line| line.strip_prefix("seed ")?.split(':').next());
    let seed = seed.and_then(|seed| seed.parse().ok());
    let seed = seed.with_context(|| format!("{}: no seed is named:\n{said}", fault.name))?;
    let is_panic = |line: &str| line.contains("' panicked at ") || line.contains(") panicked at ");
    let mut lines = said.lines().skip_while(|line| !is_panic(line));
    let why = lines.nth(1).unwrap_or_default().chars().take(160).collect();
    Ok(Some(Finding { seed, why }))
}

/// Whether a seed says nothing of a fault without the checker that is to find it.
fn passes_unchecked(programs: &[Program], fault: &Fault, seed: u64) -> Result<bool> {
    let mut test = test(programs, fault, &(seed..=seed))?;
    test.env("WEIR_UNCHECKED", fault.found_by);
    Ok(test.output().with_context(|| show(&test))?.status.success())
}

/// The test of a fault, with these seeds.
fn test(programs: &[Program], fault: &Fault, seeds: &RangeInclusive<u64>) -> Result<Command> {
    let line = format!("{}: test", fault.test);
    let program = programs.iter().find(|program| program.tests.lines().any(|test| test == line));
    let program = program.with_context(|| format!("no program has the test {}", fault.test))?;
    let mut test = Command::new(&program.path);
    test.args(["-q", "--exact", "--nocapture", fault.test]);
    let count = seeds.end() + 1 - seeds.start();
    test.env("WEIR_PLANTED", fault.name).env("WEIR_TRACE", "1");
    test.env("WEIR_SEED", seeds.start().to_string()).env("WEIR_SEEDS", count.to_string());
    Ok(test)
}

fn in_copy(root: &Path, copy: &Path) -> Command {
    let mut cargo = cargo(root);
    // Not the folder of the tree: to cargo, the copy's packages are the tree's.
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", copy.join("target"));
    // It is built once, and nobody looks into it: a gigabyte, not three.
    cargo.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

/// A copy of the tree with all faults in it. Files that are as they should be stay, so that little is
/// built again.
fn copy(root: &Path) -> Result<PathBuf> {
    let copy = target(root).join("planted");
    let files = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(files.status.success(), "git cannot list the files");
    let files = String::from_utf8(files.stdout)?;
    let files: BTreeSet<&str> = files.split('\0').filter(|file| !file.is_empty()).collect();
    remove_others(&copy, Path::new("crates"), &files)?;
    for file in files {
        let Ok(bytes) = std::fs::read(root.join(file)) else { continue };
        let bytes = match places().any(|(_, place)| place.file == file) {
            true => plant(file, String::from_utf8(bytes)?)?.into_bytes(),
            false => bytes,
        };
        let place = copy.join(file);
        if std::fs::read(&place).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(place.parent().context("a file has a folder")?)?;
        std::fs::write(&place, bytes)?;
    }
    Ok(copy)
}

/// Removes what the tree had once in a folder of the copy: two files of one module do not go.
fn remove_others(copy: &Path, folder: &Path, files: &BTreeSet<&str>) -> Result<()> {
    let Ok(entries) = std::fs::read_dir(copy.join(folder)) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let file = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(copy, &file, files)?;
        } else if !file.to_str().is_some_and(|file| files.contains(file)) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// All that is replaced, with its name.
fn places() -> impl Iterator<Item = (&'static str, &'static Place)> {
    let of = |fault: &'static Fault| fault.places.iter().map(|place| (fault.name, place));
    FAULTS.iter().flat_map(of).chain([("unchecked", &UNCHECKED)])
}

/// A file with its faults.
fn plant(file: &str, mut text: String) -> Result<String> {
    for (name, place) in places().filter(|(_, place)| place.file == file) {
        let count = text.matches(place.good).count();
        ensure!(count == 1, "{name}: its place is {count} times in {file}");
        let switch =
            format!("std::env::var_os(\"WEIR_PLANTED\").is_some_and(|name| name == {name:?})");
        text = text.replacen(place.good, &place.bad.replace("PLANTED", &switch), 1);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who changes such a place looks after the fault, too.
    #[test]
    fn each_fault_has_its_place() {
        let root = crate::root();
        for (name, place) in places() {
            let text = std::fs::read_to_string(root.join(place.file)).expect(place.file);
            let planted = plant(place.file, text.clone()).expect(name);
            assert_ne!(planted, text, "{name}");
        }
        for Fault { name, places, .. } in FAULTS {
            assert!(places.iter().all(|place| place.bad.contains("PLANTED")), "{name}");
            assert_eq!(FAULTS.iter().filter(|other| other.name == *name).count(), 1, "{name}");
        }
    }

    /// A checker that never sees what no other one does could be left out.
    #[test]
    fn each_checker_is_the_only_one_to_see_some_fault() {
        let checks = crate::root().join("crates/sim/src/checks");
        for file in std::fs::read_dir(checks).expect("the checkers") {
            let file = file.expect("a checker").path();
            let name = file.file_stem().expect("a name").to_str().expect("a name").to_owned();
            let is_only = |fault: &&Fault| fault.alone && fault.found_by == name;
            assert!(name == "mod" || FAULTS.iter().any(|fault| is_only(&fault)), "{name}");
        }
    }
}
