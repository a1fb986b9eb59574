//! Who names whom inside one crate: the arrows between its owners.
//!
//! 1. An owner is a folder right below `src`, together with the file of the same name if there is
//!    one, or else a file there. `lib.rs` is the index of the crate: it names all of them and is
//!    none itself.
//! 2. [`blank_tests`] takes out what is compiled for tests only.
//! 3. Every path that begins with `crate` or `super` is expanded to its leaves, also in groups
//!    (`use crate::{a::X, b}`). A leaf that belongs to another owner is an arrow; a name that
//!    `lib.rs` exports again belongs to the owner that it comes from.
//!
//! Methods of a type that another owner defines are not seen: they are called without a path.

use std::collections::{BTreeMap, BTreeSet};

use super::rust::blank_text;

/// One file of a crate; `path` is below its `src`, `code` has comments and strings blanked.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) code: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), code: blank_text(text) }
    }
}

/// From owner to owner, the places (`FILE:LINE` below `src`) that name it.
#[derive(Debug, Default)]
pub(super) struct Arrows(pub(super) BTreeMap<String, BTreeMap<String, Vec<String>>>);

/// What a file of test code is known by, below an owner or as one.
const TEST_FILES: [&str; 2] = ["tests", "tests.rs"];

impl Arrows {
    /// Reads the files of one crate.
    pub(super) fn read(sources: &[Source]) -> Self {
        let mut tests = BTreeSet::new();
        let mut files = Vec::new();
        for source in sources {
            let (code, modules) = blank_tests(&source.code);
            let module = module(&source.path);
            for name in modules {
                tests.insert([module.as_slice(), &[name]].concat());
            }
            files.push((source.path.as_str(), module, code));
        }
        files.retain(|(path, module, _)| {
            let below_tests = (1..=module.len()).any(|length| tests.contains(&module[..length]));
            !below_tests && !path.split('/').any(|part| TEST_FILES.contains(&part))
        });
        let mut names = BTreeMap::new();
        for (_, module, code) in &files {
            match module.first() {
                Some(owner) => drop(names.insert(owner.clone(), owner.clone())),
                None => names.extend(exports(code)),
            }
        }
        let mut arrows = Self::default();
        for (path, module, code) in &files {
            arrows.add(path, module, code, &names);
        }
        arrows
    }

    /// `names` are the names at the root of the crate, each with its owner.
    fn add(&mut self, path: &str, module: &[String], code: &str, names: &BTreeMap<String, String>) {
        let Some(from) = module.first() else { return };
        let all = self.0.entry(from.clone()).or_default();
        for leaf in relative_paths(code) {
            let Some((owner, line)) = leaf.owner(module) else { continue };
            if let Some(to) = names.get(owner).filter(|to| *to != from) {
                all.entry(to.clone()).or_default().push(format!("{path}:{line}"));
            }
        }
    }

    /// Owners that `from` names.
    pub(super) fn targets(&self, from: &str) -> impl Iterator<Item = &str> {
        self.0.get(from).into_iter().flat_map(|to| to.keys().map(String::as_str))
    }

    /// Where `from` names `to` first.
    pub(super) fn place(&self, from: &str, to: &str) -> &str {
        let places = self.0.get(from).and_then(|all| all.get(to));
        places.and_then(|places| places.first()).map_or("", String::as_str)
    }
}

/// The module of a file below `src`; that of `lib.rs` and `main.rs` is empty.
fn module(path: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    let last = parts.last().map(String::as_str);
    if last == Some("mod") || (parts.len() == 1 && matches!(last, Some("lib" | "main"))) {
        parts.pop();
    }
    parts
}

/// Blanks every item under `#[cfg(test)]`; also the names of modules that are files of tests.
fn blank_tests(code: &str) -> (String, Vec<String>) {
    const MARK: &str = "#[cfg(test)]";
    let (mut out, mut rest, mut modules) = (String::new(), code, Vec::new());
    while let Some(at) = rest.find(MARK) {
        let item = &rest[at + MARK.len()..];
        let end = item_length(item);
        if let Some(name) = item[..end].trim().strip_suffix(';').and_then(|item| {
            let words: Vec<&str> = item.split_whitespace().collect();
            words.iter().position(|word| *word == "mod").and_then(|at| words.get(at + 1).copied())
        }) {
            modules.push(name.to_owned());
        }
        out.push_str(&rest[..at]);
        out.extend(rest[at..at + MARK.len() + end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    out.push_str(rest);
    (out, modules)
}

/// Length in bytes of the item that `code` begins with: to its `;`, or to its closing brace.
fn item_length(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in code.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// A word or a sign of Rust, and its line.
type Token<'a> = (&'a str, usize);

/// Words, `::`, and every other sign alone.
fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.trim_start();
        while let Some(c) = rest.chars().next() {
            let inside = |c: char| c.is_alphanumeric() || c == '_';
            let length = match c {
                c if inside(c) => rest.find(|c| !inside(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                c => c.len_utf8(),
            };
            tokens.push((&rest[..length], line));
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// One path written out, and the name that it gets.
struct Leaf<'a> {
    path: Vec<Token<'a>>,
    name: &'a str,
}

impl<'a> Leaf<'a> {
    /// The name at the root of the crate that the path goes through, seen from `module`.
    fn owner(&self, module: &'a [String]) -> Option<(&'a str, usize)> {
        let supers = self.path.iter().take_while(|(word, _)| *word == "super").count();
        let up = if self.path.first()?.0 == "crate" { module.len() } else { supers };
        if up < module.len() {
            return Some((module[0].as_str(), self.path[0].1));
        }
        self.path.iter().copied().find(|(word, _)| !matches!(*word, "crate" | "super" | "self"))
    }
}

/// Paths that begin with `crate` or `super`, in the order of the file.
fn relative_paths(code: &str) -> Vec<Leaf<'_>> {
    let tokens = tokens(code);
    let mut leaves = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = matches!(tokens[at].0, "crate" | "super") && word(&tokens, at + 1) == "::";
        // `pub(in crate::a)` says who may look, not where this looks.
        let visibility = at > 0 && tokens[at - 1].0 == "in" && at > 1 && tokens[at - 2].0 == "(";
        if begins && !visibility {
            at = expand(&tokens, at, &mut Vec::new(), &mut leaves);
        } else {
            at += 1;
        }
    }
    leaves
}

/// What `lib.rs` exports again: each name with its owner.
fn exports(code: &str) -> BTreeMap<String, String> {
    let tokens = tokens(code);
    let mut leaves = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, (word, _))| *word == "use") {
        expand(&tokens, at + 1, &mut Vec::new(), &mut leaves);
    }
    let owner = |leaf: &Leaf<'_>| leaf.owner(&[]).map(|(owner, _)| owner.to_owned());
    leaves.iter().filter_map(|leaf| Some((leaf.name.to_owned(), owner(leaf)?))).collect()
}

/// Adds the leaves of the path at `at`, which goes on from `prefix`; where it ends.
fn expand<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &mut Vec<Token<'a>>,
    leaves: &mut Vec<Leaf<'a>>,
) -> usize {
    let depth = prefix.len();
    loop {
        if word(tokens, at) == "{" {
            at += 1;
            while !matches!(word(tokens, at), "}" | "" | ";") {
                at = expand(tokens, at, prefix, leaves).max(at + 1);
                at += usize::from(word(tokens, at) == ",");
            }
            at += 1;
            break;
        }
        let is_word = word(tokens, at).starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if is_word {
            prefix.push(tokens[at]);
            at += 1;
        }
        if is_word && word(tokens, at) == "::" {
            at += 1;
            continue;
        }
        let mut name = prefix.last().map_or("", |(word, _)| word);
        if word(tokens, at) == "as" {
            name = word(tokens, at + 1);
            at += 2;
        }
        leaves.push(Leaf { path: prefix.clone(), name });
        break;
    }
    prefix.truncate(depth);
    at
}

/// The token at `at`; behind the last one there is only emptiness.
fn word<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `from>to@place` of every arrow between the files of a made-up crate.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, text)).collect();
        let mut all = Vec::new();
        for (from, targets) in Arrows::read(&sources).0 {
            for (to, places) in targets {
                all.push(format!("{from}>{to}@{}", places.join(",")));
            }
        }
        all
    }

    #[test]
    fn an_owner_is_a_folder_or_a_file_beside_the_index() {
        let files = [
            ("lib.rs", "mod session;\nmod row;\nuse session::Gate;\n"),
            ("session.rs", "mod gate;\nuse crate::row::Row;\n"),
            ("session/gate.rs", "use crate::session::Key;\nuse super::Key;\n\nuse crate::row;\n"),
            ("session/limits/mod.rs", "use super::super::row;\nuse super::gate;\n"),
            ("row.rs", ""),
        ];
        let expected = "session>row@session.rs:2,session/gate.rs:4,session/limits/mod.rs:1";
        assert_eq!(arrows(&files), [expected]);
    }

    #[test]
    fn groups_and_paths_in_the_middle_of_code_are_arrows() {
        let text = "\
use crate::{
    b::{X, Y as Z},
    c,
};
fn f() -> crate::d::Row { super::e::<u8>::f(crate::b::g) }
";
        let mut files = vec![("a.rs", text)];
        files.extend([("b.rs", ""), ("c.rs", ""), ("d.rs", ""), ("e.rs", "")]);
        assert_eq!(
            arrows(&files),
            ["a>b@a.rs:2,a.rs:2,a.rs:5", "a>c@a.rs:3", "a>d@a.rs:5", "a>e@a.rs:5"]
        );
    }

    #[test]
    fn what_the_index_exports_again_belongs_to_its_owner() {
        let index = "mod b;\npub use b::{Row, table::Table as Rows};\n";
        let text = "use crate::Rows;\nfn f(row: crate::Row) {}\nuse crate::Unknown;\n";
        assert_eq!(
            arrows(&[("lib.rs", index), ("a.rs", text), ("b.rs", "")]),
            ["a>b@a.rs:1,a.rs:2"]
        );
    }

    #[test]
    fn tests_comments_and_visibility_are_no_arrows() {
        let text = "\
//! [`crate::b`]
pub(in crate::b) struct A(pub(crate) u8);
const S: &str = \"crate::b\";
#[cfg(test)]
mod inline {
    use crate::b;
}
#[cfg(test)]
mod far;
use crate::c;
";
        let mut files = vec![("a.rs", text), ("a/far.rs", "use crate::b;")];
        files.extend([("a/tests.rs", "use crate::b;"), ("tests/x.rs", "use crate::b;")]);
        files.extend([("b.rs", ""), ("c.rs", "")]);
        assert_eq!(arrows(&files), ["a>c@a.rs:10"]);
    }
}
