//! The pure core stays pure: no sockets, files, clocks, randomness or threads
//! below `host` and `net`, outside of tests.

use super::Finding;

/// Crates that get bytes, time, UUIDs and hash seeds as arguments.
const PURE: &[&str] =
    &["json", "data", "wire", "log", "engine", "monitor", "upstream", "cluster", "server"];

/// What reaches outside, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("std::net", "sockets belong to net and host"),
    ("std::os::unix", "sockets and descriptors belong to net and host"),
    ("std::fs", "files belong to host: hand out an effect"),
    ("std::process", "processes belong to host and cli"),
    ("std::thread", "threads belong to host"),
    ("std::env", "the environment belongs to cli"),
    ("Instant::now", "time is an argument"),
    ("SystemTime::now", "time is an argument"),
    ("RandomState", "the hash seed is an argument"),
    ("collections::HashMap", "its order is random: BTreeMap, or hashbrown with a given seed"),
    ("collections::HashSet", "its order is random: BTreeSet, or hashbrown with a given seed"),
    ("println!", "say it in a value that the caller can print"),
    ("eprintln!", "say it in a value that the caller can print"),
];

/// `code` is the source with comments and strings blanked.
pub(super) fn check(path: &str, code: &str) -> Vec<Finding> {
    if !is_pure(path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(code.lines()) {
        // The tests of a module are its last part.
        if line.trim() == "#[cfg(test)]" {
            break;
        }
        if let Some((what, remedy)) = IMPURE.iter().find(|(what, _)| has(line, what)) {
            let remedy = format!("`{what}` in the pure core: {remedy}");
            findings.push(Finding::breach(format!("{path}:{number}"), "purity", remedy));
        }
    }
    findings
}

/// Whether this is a source of a pure crate, and not of its tests.
fn is_pure(path: &str) -> bool {
    let Some((name, rest)) = path.strip_prefix("crates/").and_then(|p| p.split_once('/')) else {
        return false;
    };
    PURE.contains(&name)
        && rest.starts_with("src/")
        && !rest.split('/').any(|part| matches!(part, "tests" | "tests.rs"))
}

/// `println!` is not found in `eprintln!`, nor `std::net` in `std::network`.
fn has(line: &str, what: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(what).any(|(at, _)| {
        !inside(line[..at].chars().next_back()) && !inside(line[at + what.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_reaches_nothing_outside() {
        for code in ["use std::fs::File;", "let t = Instant::now();", "println!(\"x\");"] {
            assert_eq!(check("crates/engine/src/row.rs", code).len(), 1, "{code}");
            assert!(check("crates/host/src/disk.rs", code).is_empty(), "{code}");
        }
    }

    #[test]
    fn time_as_an_argument_is_fine() {
        assert!(check("crates/server/src/server.rs", "fn handle(now: Instant) {}").is_empty());
    }

    #[test]
    fn tests_may_read_files() {
        let code = "fn f() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert!(check("crates/log/src/reader.rs", code).is_empty());
        assert!(check("crates/log/src/reader/tests.rs", "use std::fs;").is_empty());
        assert!(check("crates/log/tests/files.rs", "use std::fs;").is_empty());
    }
}
