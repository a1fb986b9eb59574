//! Copies of the tree that are built with some text replaced: faults that are planted, limits that are cut down. So
//! nothing of that is in the product, however it is built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::step::show;
use crate::tools::{cargo, target};

/// The tests that a copy is built for.
const TARGETS: [&str; 6] = ["test", "--workspace", "--test", "simulation", "--test", "sources"];

/// A test program of a copy.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    /// The names of its tests, as it says them.
    tests: String,
}

/// The program that has this test.
pub(crate) fn with_test<'p>(programs: &'p [Program], test: &str) -> Result<&'p Program> {
    let line = format!("{test}: test");
    let program = programs.iter().find(|program| program.tests.lines().any(|test| test == line));
    program.with_context(|| format!("no program has the test {test}"))
}

/// Builds the tests of the copy of this name, in which `edit` has changed files, by their paths: the programs, and which
/// tests each has.
pub(crate) fn build(
    root: &Path,
    name: &str,
    edit: impl Fn(&str, Vec<u8>) -> Result<Vec<u8>>,
) -> Result<Vec<Program>> {
    let copy = copy(root, name, edit)?;
    let mut build = in_copy(root, &copy);
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

/// Whether the copy of this name would build, which takes a part of the time.
pub(crate) fn compiles(
    root: &Path,
    name: &str,
    edit: impl Fn(&str, Vec<u8>) -> Result<Vec<u8>>,
) -> Result<bool> {
    let copy = copy(root, name, edit)?;
    let mut check = in_copy(root, &copy);
    check.args(["check", "--quiet", "--package", "weir-sim", "--tests"]);
    Ok(check.status().with_context(|| show(&check))?.success())
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

/// Files that are as they should be stay, so that little is built again.
fn copy(
    root: &Path,
    name: &str,
    edit: impl Fn(&str, Vec<u8>) -> Result<Vec<u8>>,
) -> Result<PathBuf> {
    let copy = target(root).join(name);
    let files = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(files.status.success(), "git cannot list the files");
    let files = String::from_utf8(files.stdout)?;
    let files: BTreeSet<&str> = files.split('\0').filter(|file| !file.is_empty()).collect();
    remove_others(&copy, Path::new("crates"), &files)?;
    for file in files {
        let Ok(bytes) = std::fs::read(root.join(file)) else { continue };
        let bytes = edit(file, bytes)?;
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
