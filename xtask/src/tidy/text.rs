//! Rules for every text file: names, paths of a machine, registry hosts, columns.

use super::Finding;

/// File names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "manager", "misc", "stuff"];

/// Columns of a line. For Rust code rustfmt decides; elsewhere a longer line is a note.
const COLUMNS_MAX: usize = 100;

/// Generated files, which name what they must.
const GENERATED: &[&str] = &["Cargo.lock"];

/// Files whose lines are counted against [`COLUMNS_MAX`].
const COUNTED: &[&str] = &[".rs", ".py", ".sh", ".toml"];

/// Strings that must not appear, in two halves so that this file may.
const MACHINE_PATHS: &[(&str, &str)] = &[("/wor", "k/"), ("/tmp/", "brief"), ("/root", "/")];
const REGISTRY_HOSTS: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("pypi", ".org"),
    ("npmjs", ".org"),
    ("pythonhosted", ".org"),
    ("deb.debian", ".org"),
    ("proxy.golang", ".org"),
];

pub(super) fn check_name(path: &str) -> Option<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let parts = path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let empty = parts.into_iter().find(|part| EMPTY_NAMES.contains(part))?;
    let remedy = format!("`{empty}` says nothing: name `{name}` after the noun it holds");
    Some(Finding::breach(path, "names", remedy))
}

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if GENERATED.iter().any(|name| path.rsplit('/').next() == Some(name)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = || format!("{path}:{number}");
        if let Some(found) = machine_path(line) {
            let remedy = format!("`{found}` exists on one machine only: pass the path in");
            findings.push(Finding::breach(place(), "machine paths", remedy));
        }
        if let Some(found) = registry_host(line) {
            let remedy = format!("`{found}`: leave the choice of a registry to the user's tools");
            findings.push(Finding::breach(place(), "registry hosts", remedy));
        }
    }
    if let Some(finding) = check_columns(path, text) {
        findings.push(finding);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        let remedy = "end the last line with a newline";
        findings.push(Finding::note(path, "last newline", remedy));
    }
    findings
}

/// One note a file, not one a line: a long line is seldom alone.
fn check_columns(path: &str, text: &str) -> Option<Finding> {
    if !COUNTED.iter().any(|end| path.ends_with(end)) {
        return None;
    }
    let long: Vec<usize> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.chars().count() > COLUMNS_MAX)
        .map(|(number, _)| number)
        .collect();
    let first = long.first()?;
    let remedy = format!("{} lines over {COLUMNS_MAX} columns: wrap them", long.len());
    Some(Finding::note(format!("{path}:{first}"), "columns", remedy))
}

/// An absolute path of a machine, not the tail of a longer relative one.
fn machine_path(line: &str) -> Option<String> {
    MACHINE_PATHS.iter().find_map(|(head, tail)| {
        let pattern = format!("{head}{tail}");
        let starts = line.match_indices(&pattern).map(|(at, _)| at);
        let absolute = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-/}*~$".contains(c))
        };
        starts.into_iter().any(absolute).then_some(pattern)
    })
}

fn registry_host(line: &str) -> Option<String> {
    REGISTRY_HOSTS
        .iter()
        .map(|(head, tail)| format!("{head}{tail}"))
        .find(|host| line.contains(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(path, text).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        assert!(check_name("crates/data/src/util.rs").is_some());
        assert!(check_name("tests/common/mod.rs").is_some());
        assert!(check_name("crates/data/src/utility_bill.rs").is_none());
    }

    #[test]
    fn machine_paths_are_refused_and_relative_ones_are_not() {
        let path = ["/wor", "k/main"].concat();
        assert_eq!(rules("a.md", &format!("see {path}\n")), ["machine paths"]);
        assert!(rules("a.md", &format!("see docs{path}\n")).is_empty());
    }

    #[test]
    fn registry_hosts_are_refused_outside_the_lock_file() {
        let line = format!("from https://{}{}/x\n", "crates", ".io");
        assert_eq!(rules("README.md", &line), ["registry hosts"]);
        assert!(rules("Cargo.lock", &line).is_empty());
    }

    #[test]
    fn long_lines_are_a_note_in_code_and_free_in_prose() {
        let long = format!("{}\n", "x".repeat(101));
        assert_eq!(rules("a.py", &long), ["columns"]);
        assert!(rules("a.md", &long).is_empty());
    }

    #[test]
    fn columns_are_characters_not_bytes() {
        assert!(rules("a.py", &format!("{}\n", "µ".repeat(100))).is_empty());
    }
}
