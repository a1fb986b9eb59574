//! Doc comments that do not stand alone: rustdoc shows each beside its item only, where "It is
//! answered." or "The same." tells nobody anything.

use std::collections::BTreeMap;

use super::Finding;

const RULE: &str = "doc comments";

/// Beginnings that want something before them.
const LEANING: &[&str] =
    &["It", "Its", "They", "Their", "The same", "Those", "As that", "As those"];

/// Whole comments that say nothing.
const EMPTY: &[&str] = &["See above.", "See below.", "As above.", "Likewise.", "Itself."];

/// A comment that leans on its surroundings: its place and its first line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaning {
    place: String,
    text: String,
}

impl std::fmt::Display for Leaning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// The leaning comments of one file.
pub(super) fn find(path: &str, source: &str) -> Vec<Leaning> {
    let lines: Vec<Option<&str>> = source.lines().map(doc_text).collect();
    let mut found = Vec::new();
    for (index, text) in lines.iter().enumerate() {
        let goes_on = index > 0 && lines[index - 1].is_some();
        let Some(text) = text.filter(|_| !goes_on) else { continue };
        let alone = lines.get(index + 1).copied().flatten().is_none();
        if leans(text) || (alone && EMPTY.contains(&text)) {
            found.push(Leaning { place: format!("{path}:{}", index + 1), text: text.to_owned() });
        }
    }
    found
}

/// What a line of a doc comment says.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then(|| text.trim())
}

fn leans(text: &str) -> bool {
    LEANING.iter().any(|begin| {
        text.strip_prefix(begin)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

/// One note a crate, with its number.
pub(super) fn notes(all: &[Leaning]) -> Vec<Finding> {
    let mut crates: BTreeMap<String, Vec<&Leaning>> = BTreeMap::new();
    for leaning in all {
        let parts: Vec<&str> = leaning.place.split('/').collect();
        let depth = if parts[0] == "crates" { 2 } else { 1 };
        crates.entry(parts[..depth.min(parts.len())].join("/")).or_default().push(leaning);
    }
    let note = |(place, found): (String, Vec<&Leaning>)| {
        let remedy = format!(
            "{} do not stand alone, as \"{}\": say what they are about (`tidy --docs` lists them)",
            found.len(),
            found[0].text
        );
        Finding::note(place, RULE, remedy)
    };
    crates.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(source: &str) -> usize {
        find("crates/a/src/b.rs", source).len()
    }

    #[test]
    fn a_comment_that_begins_with_a_pronoun_leans() {
        for text in ["/// It is answered.", "    /// The same.", "//! Those that changed."] {
            assert_eq!(count(text), 1, "{text}");
        }
        for text in ["/// Items in order.", "/// The samest.", "// It is answered.", "//// It is"] {
            assert_eq!(count(text), 0, "{text}");
        }
    }

    #[test]
    fn only_its_beginning_counts() {
        assert_eq!(count("/// A session that left.\n/// It is answered.\n"), 0);
        assert_eq!(count("/// A session.\nfn f();\n/// They come back.\nfn g();\n"), 1);
    }

    #[test]
    fn an_empty_phrase_is_one_if_nothing_follows() {
        assert_eq!(count("/// See above.\nfn f();\n"), 1);
        assert_eq!(count("/// See above.\n/// Rows are sorted.\n"), 0);
    }

    #[test]
    fn each_crate_has_its_number() {
        let mut all = find("crates/a/src/b.rs", "/// Its rows.\nfn f();\n/// They.\n");
        all.extend(find("xtask/src/main.rs", "/// The same.\n"));
        let notes: Vec<String> = notes(&all).iter().map(Finding::to_string).collect();
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("note: crates/a: [doc comments] 2 do not"), "{}", notes[0]);
        assert!(notes[1].starts_with("note: xtask: [doc comments] 1 do not"), "{}", notes[1]);
    }
}
