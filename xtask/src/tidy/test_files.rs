//! Test files that no program contains: where cargo does not look for tests itself
//! (`autotests = false`), a file that nobody names would never run.

use std::collections::BTreeSet;

use anyhow::Result;
use toml::{Table, Value};

use super::Finding;

const RULE: &str = "tests";

/// Checks one crate: `manifest` is its text, `paths` are all files of the tree, and `read` returns
/// the text of one.
pub(super) fn check(
    folder: &str,
    manifest: &str,
    paths: &[String],
    read: impl Fn(&str) -> Result<String>,
) -> Result<Vec<Finding>> {
    let manifest: Table = manifest.parse()?;
    let setting = manifest.get("package").and_then(|package| package.get("autotests"));
    if setting != Some(&Value::Boolean(false)) {
        return Ok(Vec::new());
    }
    let programs = manifest.get("test").and_then(Value::as_array).into_iter().flatten();
    let mut known = BTreeSet::new();
    for program in programs.filter_map(|test| test.get("name")?.as_str()) {
        let root = format!("{folder}/tests/{program}.rs");
        if paths.contains(&root) {
            let modules = read(&root)?;
            let names =
                modules.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
            known.extend(names.map(|name| format!("{folder}/tests/{name}.rs")));
            known.insert(root);
        }
    }
    let is_test = |path: &&String| {
        let name = path.strip_prefix(folder).and_then(|path| path.strip_prefix("/tests/"));
        name.is_some_and(|name| name.ends_with(".rs") && !name.contains('/'))
    };
    let lost = paths.iter().filter(is_test).filter(|path| !known.contains(*path));
    let remedy = "no test program contains it: name it in one of those of Cargo.toml";
    Ok(lost.map(|path| Finding::breach(path.as_str(), RULE, remedy)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(manifest: &str) -> Vec<String> {
        let paths = ["all.rs", "waits.rs", "relay.rs", "shell/mod.rs"];
        let paths = paths.map(|name| format!("crates/a/tests/{name}"));
        let read = |_: &str| Ok("//! All.\n\nmod shell;\nmod waits;\n".to_owned());
        let found = check("crates/a", manifest, &paths, read).expect("TOML");
        found.into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn a_file_that_no_program_names_is_found() {
        let manifest = "[package]\nautotests = false\n[[test]]\nname = \"all\"";
        assert_eq!(lost(manifest), ["crates/a/tests/relay.rs"]);
    }

    #[test]
    fn cargo_finds_tests_itself_elsewhere() {
        assert!(lost("[package]\nname = \"a\"").is_empty());
    }
}
