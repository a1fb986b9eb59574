//! Golden scripts: what sessions do to each other, and what no generator comes upon.
//!
//! `tests/scripts/NAME.script` in the workspace is played to Weir and, where it is installed, to the
//! reference; both transcripts must equal `NAME.out`. A script whose first line is
//! `# reference differs: WHY` is played to Weir only. `BLESS=1` writes the transcript of the
//! reference (of Weir where the reference differs) into `NAME.out`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_testkit::client::parse;
use weir_testkit::process::{Program, reference, weir};
use weir_testkit::script::play;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts")
}

fn schemas() -> Vec<Value> {
    let read = |name| fs::read(folder().join(name)).expect("a schema");
    ["zoo.schema", "other.schema"]
        .map(|name| parse(&read(name)).expect("a schema in JSON"))
        .to_vec()
}

/// The lines in which two transcripts differ, each below the line of the script that led to it.
fn difference(expected: &str, got: &str, who: &str) -> Option<String> {
    let (mut x, mut y) = (expected.lines(), got.lines());
    let mut said = "";
    loop {
        match (x.next(), y.next()) {
            (None, None) => return None,
            (Some(a), Some(b)) if a == b => {
                if !a.starts_with("  ") {
                    said = a;
                }
            }
            (a, b) => {
                let (a, b) = (a.unwrap_or("(end)"), b.unwrap_or("(end)"));
                return Some(format!("{said}\n expected {a}\n {who:8} {b}"));
            }
        }
    }
}

fn check(path: &Path, failures: &mut Vec<String>) {
    let script = fs::read_to_string(path).expect("a script");
    let out = path.with_extension("out");
    let differs = script.starts_with("# reference differs:");
    let mut programs: Vec<Program> = reference().into_iter().filter(|_| !differs).collect();
    programs.push(weir());
    for program in programs {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let transcript = match play(&program, &schemas(), &script) {
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
    let mut scripts: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the folder of scripts")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "script"))
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
