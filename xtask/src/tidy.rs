//! Rules of the tree that neither the compiler nor clippy checks.
//!
//! Each message names the rule, as `STYLE.md` does, and the remedy. Findings
//! fail the run; notes are shown and do not.

mod arrows;
mod circles;
mod doc_comments;
mod files;
mod links;
mod manifests;
mod purity;
mod rust;
mod test_files;
mod text;

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Result, bail};

use arrows::Source;

/// One breach of a rule, or a note about one that is near.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    /// Path below the root, with `:LINE` where a line is to blame.
    place: String,
    rule: &'static str,
    /// What is wrong and what to do about it.
    remedy: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Breach,
    Note,
}

impl Finding {
    fn breach(place: impl Into<String>, rule: &'static str, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Breach, place: place.into(), rule, remedy: remedy.into() }
    }

    fn note(place: impl Into<String>, rule: &'static str, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Note, place: place.into(), rule, remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Breach => "error",
            Severity::Note => "note",
        };
        write!(f, "{word}: {}: [{}] {}", self.place, self.rule, self.remedy)
    }
}

/// Checks the tree and prints what it found; true when nothing fails.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let findings = check(root)?;
    let (breaches, notes): (Vec<_>, Vec<_>) =
        findings.iter().partition(|f| f.severity == Severity::Breach);
    for finding in notes.iter().chain(&breaches) {
        println!("{finding}");
    }
    println!("tidy: {} errors, {} notes", breaches.len(), notes.len());
    Ok(breaches.is_empty())
}

/// Prints who names whom inside a crate, and the circles.
pub(crate) fn show_arrows(root: &Path, name: &str) -> Result<bool> {
    let sources = sources(root, name, &files::list(root)?)?;
    if sources.is_empty() {
        bail!("no crate {name}");
    }
    print(&circles::describe(&sources));
    Ok(true)
}

/// Prints every doc comment that does not stand alone.
pub(crate) fn show_docs(root: &Path) -> Result<bool> {
    let mut lines = String::new();
    for path in files::list(root)?.iter().filter(|path| path.ends_with(".rs")) {
        let source = std::fs::read_to_string(root.join(path))?;
        for leaning in doc_comments::find(path, &source) {
            let _ = writeln!(lines, "{leaning}");
        }
    }
    print(&lines);
    Ok(true)
}

/// Prints a list that may be long, to a reader who may have seen enough (`| head`).
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = manifests::check(root)?;
    let paths = files::list(root)?;
    let mut leaning = Vec::new();
    for path in &paths {
        findings.extend(text::check_name(path));
        let bytes = std::fs::read(root.join(path))?;
        let Ok(source) = String::from_utf8(bytes) else { continue };
        findings.extend(text::check(path, &source));
        if path.ends_with(".rs") {
            let code = rust::blank_text(&source);
            findings.extend(rust::check(path, &source, &code));
            findings.extend(purity::check(path, &code));
            leaning.extend(doc_comments::find(path, &source));
        }
        if path.ends_with(".md") {
            findings.extend(links::check(path, &source, |target| root.join(target).exists()));
        }
    }
    for path in paths.iter().filter(|path| path.ends_with("Cargo.toml")) {
        let folder = path.trim_end_matches("/Cargo.toml");
        let read = |path: &str| Ok(std::fs::read_to_string(root.join(path))?);
        findings.extend(test_files::check(folder, &read(path)?, &paths, read)?);
    }
    for name in circles::crates() {
        findings.extend(circles::check(name, &sources(root, name, &paths)?));
    }
    findings.extend(doc_comments::notes(&leaning));
    Ok(findings)
}

/// The sources of a crate, `paths` being all files of the tree.
fn sources(root: &Path, name: &str, paths: &[String]) -> Result<Vec<Source>> {
    let folder = format!("crates/{name}/src/");
    let mut sources = Vec::new();
    for path in paths {
        let Some(below) = path.strip_prefix(&folder).filter(|path| path.ends_with(".rs")) else {
            continue;
        };
        sources.push(Source::new(below, &std::fs::read_to_string(root.join(path))?));
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree itself keeps its rules.
    #[test]
    fn the_tree_is_tidy() {
        let breaches: Vec<String> = check(&crate::root())
            .expect("the tree can be read")
            .iter()
            .filter(|f| f.severity == Severity::Breach)
            .map(Finding::to_string)
            .collect();
        assert!(breaches.is_empty(), "cargo xtask tidy:\n{}", breaches.join("\n"));
    }
}
