//! `cargo xtask planted`: faults that somebody could make are planted in a copy of the tree, and the
//! simulators must find each.
//!
//! The faults are pieces of text (`faults`), so that nothing of them is in the product, however it is
//! built. All are in one copy, each behind a switch (the variable `WEIR_PLANTED`), so that it is built
//! once.

mod faults;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::copied::{self, Program};
use crate::step::{Outcome, show};
use faults::{FAULTS, Fault, Place, UNCHECKED};

/// The name of the copy.
const COPY: &str = "planted";

/// So many seeds must find a fault.
const SEEDS: u64 = 1000;

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
    let programs = copied::build(root, COPY, with_faults)?;
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

/// All planted faults, as a step of a task. CI would build their copy from nothing, and only sees to it that it compiles.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    let is_well = match std::env::var_os("CI") {
        Some(_) => copied::compiles(root, COPY, with_faults)?,
        None => run(root, &[])?,
    };
    Ok(if is_well { Outcome::Passed } else { Outcome::Failed })
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
    let program = copied::with_test(programs, fault.test)?;
    let mut test = Command::new(&program.path);
    test.args(["-q", "--exact", "--nocapture", fault.test]);
    let count = seeds.end() + 1 - seeds.start();
    test.env("WEIR_PLANTED", fault.name).env("WEIR_TRACE", "1");
    test.env("WEIR_SEED", seeds.start().to_string()).env("WEIR_SEEDS", count.to_string());
    Ok(test)
}

/// All that is replaced, with its name.
fn places() -> impl Iterator<Item = (&'static str, &'static Place)> {
    let of = |fault: &'static Fault| fault.places.iter().map(|place| (fault.name, place));
    FAULTS.iter().flat_map(of).chain([("unchecked", &UNCHECKED)])
}

/// A file of the tree as it is in the copy.
fn with_faults(file: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    Ok(match places().any(|(_, place)| place.file == file) {
        true => plant(file, String::from_utf8(bytes)?)?.into_bytes(),
        false => bytes,
    })
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
