//! Which tests there are: cargo says where the programs are, each program what is in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::runner;
use crate::step::show;

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Package and target, as nextest names them.
    name: String,
    path: PathBuf,
    /// The folder of its package, where its tests run.
    folder: PathBuf,
}

/// One test of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    program: Program,
    name: String,
}

/// All test programs of the workspace, compiled if they are not yet.
pub(super) fn programs(root: &Path) -> Result<Vec<Program>> {
    let mut build = runner::build(root);
    build.arg("--message-format=json-render-diagnostics");
    let output = build.stderr(Stdio::inherit()).output().with_context(|| show(&build))?;
    if !output.status.success() {
        bail!("the tests do not compile");
    }
    let messages = String::from_utf8(output.stdout).context("what cargo says")?;
    messages.lines().filter_map(|line| program(line).transpose()).collect()
}

/// The test program that a message of cargo is about, if it is about one.
fn program(message: &str) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(message).context("a message of cargo")?;
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
    let (Some(path), true) = (text("/executable"), is_test) else { return Ok(None) };
    let manifest = text("/manifest_path").context("an artifact without its package")?;
    let folder = Path::new(manifest).parent().context("a manifest in no folder")?;
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    let target = text("/target/name").unwrap_or_default();
    let name = format!("{package}::{target}");
    Ok(Some(Program { name, path: path.into(), folder: folder.to_owned() }))
}

impl Program {
    /// The program's tests, in its order.
    pub(super) fn tests(&self) -> Result<Vec<Test>> {
        let mut list = self.command();
        let output = list.args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| show(&list))?;
        if !output.status.success() {
            bail!("{}: {}", show(&list), String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout).with_context(|| show(&list))?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(|name| Test { program: self.clone(), name: name.to_owned() }).collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null());
        command
    }
}

impl Test {
    /// The test's name and that of its program.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.program.name, self.name)
    }

    /// What runs it, alone.
    pub(super) fn command(&self) -> Command {
        let mut command = self.program.command();
        command.args(["--exact", &self.name, "--nocapture"]);
        command
    }

    /// A test that is a shell script, to test the runner.
    #[cfg(test)]
    pub(super) fn script(name: &str, text: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let file = format!("weir-runner-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n"))
            .expect("temporary files can be written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        let program = Program { name: "script".into(), path, folder: std::env::temp_dir() };
        Self { program, name: name.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact",
        "manifest_path":"/w/crates/log/Cargo.toml","target":{"name":"damaged","kind":["test"]},
        "profile":{"test":TEST},"executable":EXECUTABLE}"#;

    fn artifact(test: &str, executable: &str) -> Option<Program> {
        let message = ARTIFACT.replace("TEST", test).replace("EXECUTABLE", executable);
        program(&message).expect("valid JSON")
    }

    #[test]
    fn programs_of_tests_are_told_from_other_artifacts() {
        let found = artifact("true", "\"/w/target/damaged-1\"").expect("a program of tests");
        assert_eq!((found.name.as_str(), found.folder), ("log::damaged", "/w/crates/log".into()));
        assert_eq!(artifact("false", "\"/w/target/weir\""), None);
        assert_eq!(artifact("true", "null"), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#).expect("JSON"), None);
    }

    #[test]
    fn a_program_lists_its_tests() {
        let test = Test::script("lists", "printf 'a::b: test\\nc: test\\nd: benchmark\\n'");
        let tests = test.program.tests().expect("it runs");
        let labels: Vec<String> = tests.iter().map(Test::label).collect();
        assert_eq!(labels, ["script a::b", "script c"]);
    }
}
