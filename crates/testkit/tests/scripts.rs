//! Golden scripts: what sessions do to each other, and what no generator comes upon.
//!
//! `tests/scripts/NAME.script` in the workspace is played to Weir and, where it is installed, to the
//! reference; both transcripts must equal `NAME.out`. A script whose first line is
//! `# reference differs: WHY` is played to Weir only, and `# databases: NAME` in the second line
//! chooses others than zoo and other. `BLESS=1` writes the transcript of the
//! reference (of Weir where the reference differs) into `NAME.out`; `SCRIPT=NAME` plays one only.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_testkit::client::parse;
use weir_testkit::process::{Program, reference, weir};
use weir_testkit::script::play;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts")
}

/// The schemas of the databases that a script is played to.
fn schemas(script: &str) -> Vec<Value> {
    let read = |name| fs::read(folder().join(format!("{name}.schema"))).expect("a schema");
    let chosen = script.lines().nth(1).and_then(|line| line.strip_prefix("# databases: "));
    let names = chosen.unwrap_or("zoo other").split(' ');
    names.map(|name| parse(&read(name)).expect("a schema in JSON")).collect()
}

/// The lines of a script, each with what was heard after it.
fn blocks(transcript: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = vec![];
    for line in transcript.lines() {
        match blocks.last_mut() {
            Some((_, heard)) if line.starts_with("  ") => heard.push(line),
            _ => blocks.push((line, vec![])),
        }
    }
    blocks
}

/// Where two transcripts of the same script differ.
fn difference(expected: &str, got: &str, who: &str) -> Option<String> {
    let mut differences = vec![];
    let (x, y) = (blocks(expected), blocks(got));
    if x.len() != y.len() {
        return Some(format!("{} lines recorded, {} played: record again", x.len(), y.len()));
    }
    for ((said, a), (_, b)) in x.iter().zip(&y) {
        if a != b {
            let (a, b) = (a.join("\n    "), b.join("\n    "));
            differences.push(format!("{said}\n  expected\n    {a}\n  {who}\n    {b}"));
        }
    }
    (!differences.is_empty()).then(|| differences.join("\n"))
}

fn check(path: &Path, failures: &mut Vec<String>) {
    let script = fs::read_to_string(path).expect("a script");
    let out = path.with_extension("out");
    let differs = script.starts_with("# reference differs:");
    let mut programs: Vec<Program> = reference().into_iter().filter(|_| !differs).collect();
    programs.push(weir());
    for program in programs {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let transcript = match play(&program, &schemas(&script), &script) {
            Ok(transcript) => transcript,
            Err(trouble) => {
                failures.push(format!("{name}: {}: {trouble}", program.label));
                continue;
            }
        };
        if std::env::var_os("BLESS").is_some() && (differs || program.label == "reference") {
            fs::write(&out, &transcript).expect("a transcript to write");
        }
        let expected = fs::read_to_string(&out).unwrap_or_default();
        if let Some(difference) = difference(&expected, &transcript, program.label) {
            failures.push(format!("{name}: {difference}"));
        }
    }
}

#[test]
fn sessions_hear_what_they_should() {
    let only = std::env::var_os("SCRIPT");
    let mut scripts: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the folder of scripts")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "script"))
        .filter(|path| {
            path.file_stem().is_some_and(|name| only.as_ref().is_none_or(|it| it == name))
        })
        .collect();
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {}", folder().display());
    if reference().is_none() {
        println!("SKIP the reference's side of {} scripts: it is not installed", scripts.len());
    }
    let mut failures = vec![];
    for script in &scripts {
        check(script, &mut failures);
    }
    println!("{} scripts", scripts.len());
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n\n"));
}
