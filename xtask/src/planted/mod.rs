//! `cargo xtask planted`: faults that somebody could make are planted in a copy of the tree, and the
//! simulators must find each.
//!
//! The faults are pieces of text (`faults`), so that nothing of them is in the product, however it is
//! built. All are in one copy, each behind a switch (the variable `WEIR_PLANTED`), so that it is built
//! once.

mod faults;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::step::{Outcome, show};
use crate::tools::{cargo, target};
use faults::{FAULTS, Fault};

/// So many seeds must find a fault.
const SEEDS: u64 = 40;

/// The test that builds the copy.
const TARGET: [&str; 4] = ["test", "--workspace", "--test", "simulation"];

/// Plants the faults, or those of these names, and runs the simulators until each is found; true if all
/// are.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    let copy = copy(root)?;
    let built = in_copy(root, &copy).args(TARGET).arg("--no-run").status()?;
    ensure!(built.success(), "the copy in {} cannot be built", copy.display());
    let is_wanted = |fault: &&Fault| names.is_empty() || names.contains(&fault.name);
    let mut are_found = true;
    for fault in FAULTS.iter().filter(is_wanted) {
        let found = find(root, &copy, fault)?;
        println!("{:<28} {}", fault.name, found.as_deref().unwrap_or("NOT FOUND"));
        are_found &= found.is_some();
    }
    Ok(are_found)
}

/// All of them, as a step of a task; not in CI, for the copy is built from nothing there.
pub(crate) fn step(root: &Path) -> Result<Outcome> {
    if std::env::var_os("CI").is_some() {
        return Ok(Outcome::Skipped("in CI; by hand: cargo xtask planted".into()));
    }
    Ok(if run(root, &[])? { Outcome::Passed } else { Outcome::Failed })
}

/// Which seed finds a fault, and what is said then.
fn find(root: &Path, copy: &Path, fault: &Fault) -> Result<Option<String>> {
    let mut test = in_copy(root, copy);
    test.args(TARGET).args(["--no-fail-fast", "-q", "--", "--exact", "--nocapture", fault.test]);
    test.env("WEIR_PLANTED", fault.name).env("WEIR_SEED", "1").env("WEIR_TRACE", "1");
    test.env("WEIR_SEEDS", SEEDS.to_string());
    let output = test.output().with_context(|| show(&test))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let line = |begin: &str| said.lines().find_map(|line| line.strip_prefix(begin));
    let seed = line("seed ").map_or("?", |rest| rest.trim_end_matches(':'));
    let mut lines = said
        .lines()
        .skip_while(|line| !line.contains("' panicked at ") && !line.contains(") panicked at "));
    let why: String = lines.nth(1).unwrap_or_default().chars().take(160).collect();
    ensure!(why.contains(fault.found_by), "{}: seed {seed} says: {why}", fault.name);
    Ok(Some(format!("seed {seed}: {why}")))
}

fn in_copy(root: &Path, copy: &Path) -> Command {
    let mut cargo = cargo(root);
    // Not the folder of the tree: to cargo, the copy's packages are the tree's.
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", copy.join("target"));
    cargo
}

/// A copy of the tree with all faults in it. Files that are as they should be stay, so that little is
/// built again.
fn copy(root: &Path) -> Result<PathBuf> {
    let copy = target(root).join("planted");
    let files = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(files.status.success(), "git cannot list the files");
    let files = String::from_utf8(files.stdout)?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let Ok(bytes) = std::fs::read(root.join(file)) else { continue };
        let bytes = match FAULTS.iter().any(|fault| fault.file == file) {
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

/// A file with its faults.
fn plant(file: &str, mut text: String) -> Result<String> {
    for fault in FAULTS.iter().filter(|fault| fault.file == file) {
        let count = text.matches(fault.good).count();
        ensure!(count == 1, "{}: its place is {count} times in {file}", fault.name);
        let switch = format!(
            "std::env::var_os(\"WEIR_PLANTED\").is_some_and(|name| name == {:?})",
            fault.name
        );
        text = text.replacen(fault.good, &fault.bad.replace("PLANTED", &switch), 1);
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
        for fault in FAULTS {
            let text = std::fs::read_to_string(root.join(fault.file)).expect(fault.file);
            let planted = plant(fault.file, text.clone()).expect(fault.name);
            assert_ne!(planted, text, "{}", fault.name);
            assert!(fault.bad.contains("PLANTED"), "{}", fault.name);
            let names = FAULTS.iter().filter(|other| other.name == fault.name);
            assert_eq!(names.count(), 1, "{}", fault.name);
        }
    }
}
