//! Rules for Rust sources: heads, sizes, unfinished code, `unsafe`.

use super::Finding;

/// Lines of a file that fail; [`FILE_LINES_NOTED`] is the aim.
const FILE_LINES_MAX: usize = 900;
const FILE_LINES_NOTED: usize = 600;
/// Lines of a `lib.rs`: it names modules in reading order and holds little else.
const LIB_LINES_MAX: usize = 150;
/// Lines of a function, from its `fn` to its closing brace.
const FN_LINES_MAX: usize = 70;

/// Files that may hold `unsafe`, each use under a `SAFETY` comment.
/// A line here wants a reason.
const MAY_UNSAFE: &[&str] = &[
    // fork(2) has no safe wrapper; it is called before the first thread.
    "crates/host/src/daemon/fork.rs",
    // signal(2) has none either: faults must kill at once.
    "crates/host/src/fault.rs",
    // What one thread has used is told by getrusage(2) only.
    "crates/host/src/usage.rs",
    // Nor have localtime_r(3) and strftime(3), and dates in a log are what they say.
    "crates/host/src/vlog/date.rs",
    // A descriptor that was inherited is only a number.
    "crates/net/src/inherited.rs",
    // What a peer has not acknowledged is told by an ioctl(2) only.
    "crates/net/src/unacknowledged.rs",
];

/// Code that stands for missing code.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "#[ignore"];

/// Words of comments that stand for missing work, in two halves so that this file may.
const UNFINISHED_WORDS: &[(&str, &str)] = &[("FIX", "ME"), ("XX", "X"), ("TO", "DO")];

/// `code` is the source after [`blank_text`].
pub(super) fn check(path: &str, source: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(check_head(path, source));
    findings.extend(check_size(path, source));
    findings.extend(check_unfinished(path, source, code));
    findings.extend(check_unsafe(path, source, code));
    findings.extend(check_functions(path, code));
    findings
}

fn check_head(path: &str, source: &str) -> Option<Finding> {
    let first = source.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if first.starts_with("//!") {
        return None;
    }
    let remedy = "open the file with `//!`: what it holds and why it is a file";
    Some(Finding::breach(path, "file heads", remedy))
}

fn check_size(path: &str, source: &str) -> Option<Finding> {
    let lines = source.lines().count();
    if path.ends_with("/lib.rs") && lines > LIB_LINES_MAX {
        let remedy = format!("{lines} lines, at most {LIB_LINES_MAX}: move code into its modules");
        return Some(Finding::breach(path, "lib.rs", remedy));
    }
    let remedy = format!(
        "{lines} lines, at most {FILE_LINES_MAX}, aim below {FILE_LINES_NOTED}: split where \
         concepts split, tests into a file of their own"
    );
    if lines > FILE_LINES_MAX {
        Some(Finding::breach(path, "file size", remedy))
    } else if lines > FILE_LINES_NOTED {
        Some(Finding::note(path, "file size", remedy))
    } else {
        None
    }
}

fn check_unfinished(path: &str, source: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, (line, code)) in (1..).zip(source.lines().zip(code.lines())) {
        let place = format!("{path}:{number}");
        for word in UNFINISHED.iter().filter(|word| code.contains(**word)) {
            let remedy = format!("`{word}`: finish it, or leave it out and say so in the docs");
            findings.push(Finding::breach(place.clone(), "unfinished code", remedy));
        }
        for (head, tail) in UNFINISHED_WORDS {
            let word = [*head, *tail].concat();
            if has_word(line, &word) {
                let remedy = format!("`{word}`: do it, or file it where work is tracked");
                findings.push(Finding::breach(place.clone(), "unfinished code", remedy));
            }
        }
    }
    findings
}

fn check_unsafe(path: &str, source: &str, code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = source.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in code.lines().enumerate() {
        if !has_word(line, "unsafe") {
            continue;
        }
        let place = format!("{path}:{}", index + 1);
        if !MAY_UNSAFE.contains(&path) {
            let remedy = "write it without `unsafe`, or move it to a file of MAY_UNSAFE in \
                          xtask/src/tidy/rust.rs and give the reason there";
            findings.push(Finding::breach(place, "unsafe", remedy));
        } else if !explained(&lines, index) {
            let remedy = "say in a `SAFETY:` comment right above why this is sound";
            findings.push(Finding::breach(place, "unsafe", remedy));
        }
    }
    findings
}

/// Whether the comment right above line `index`, attributes aside, says `SAFETY:`.
fn explained(lines: &[&str], index: usize) -> bool {
    lines[..index]
        .iter()
        .rev()
        .take_while(|line| line.trim_start().starts_with(['/', '#']))
        .any(|line| line.contains("SAFETY:"))
}

/// Functions that are too long, by the layout that rustfmt gives: the closing
/// brace stands in the column of the line with `fn`.
fn check_functions(path: &str, code: &str) -> Vec<Finding> {
    let lines: Vec<&str> = code.lines().collect();
    let mut findings = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if !has_word(line, "fn") || line.trim_end().ends_with([';', '}']) {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let closing = format!("{}}}", " ".repeat(indent));
        let Some(length) = lines[index..].iter().position(|l| l.trim_end() == closing) else {
            continue;
        };
        if length + 1 > FN_LINES_MAX {
            let remedy = format!(
                "{} lines, at most {FN_LINES_MAX} (a flat match excepted): name its phases",
                length + 1
            );
            findings.push(Finding::note(format!("{path}:{}", index + 1), "function size", remedy));
        }
    }
    findings
}

fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !inside(line[..at].chars().next_back()) && !inside(line[at + word.len()..].chars().next())
    })
}

/// `source` with the contents of comments, strings and character literals
/// replaced by blanks, line by line, so that a search finds code only.
pub(super) fn blank_text(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let previous = out.chars().next_back();
        let length = text_length(rest, previous);
        if length == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            let (text, after) = rest.split_at(length);
            out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        }
    }
    out
}

/// Length in bytes of the comment or literal that `rest` begins with, or 0.
fn text_length(rest: &str, previous: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    let in_word = previous.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_word {
        let after_b = rest.strip_prefix('b').unwrap_or(rest);
        if let Some(raw) = after_b.strip_prefix('r') {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let opening = rest.len() - raw.len() + hashes + 1;
                let body = &rest[opening..];
                return body.find(&end).map_or(rest.len(), |at| opening + at + end.len());
            }
        }
    }
    match rest.as_bytes().first() {
        Some(b'"') => quoted_length(rest, '"'),
        Some(b'\'') => char_length(rest),
        _ => 0,
    }
}

fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0usize);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal, or 0 for a lifetime or label.
fn char_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => quoted_length(rest, '\''),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> Vec<Finding> {
        check(path, source, &blank_text(source))
    }

    fn rules(path: &str, source: &str) -> Vec<&'static str> {
        found(path, source).into_iter().map(|f| f.rule).collect()
    }

    #[test]
    fn a_file_says_what_it_is() {
        assert!(rules("a.rs", "//! Rows.\n").is_empty());
        assert_eq!(rules("a.rs", "use std::fmt;\n"), ["file heads"]);
    }

    #[test]
    fn sizes_have_an_aim_and_a_cap() {
        let file = |lines: usize| format!("//! Rows.\n{}", "\n".repeat(lines - 1));
        assert!(rules("a.rs", &file(600)).is_empty());
        assert_eq!(found("a.rs", &file(601))[0].severity, super::super::Severity::Note);
        assert_eq!(found("a.rs", &file(901))[0].severity, super::super::Severity::Breach);
        assert!(rules("x/lib.rs", &file(150)).is_empty());
        assert_eq!(rules("x/lib.rs", &file(151)), ["lib.rs"]);
    }

    #[test]
    fn unfinished_code_is_refused() {
        for line in ["fn f() { todo!() }", "#[ignore = \"slow\"]", "fn f() { unimplemented!() }"] {
            assert_eq!(rules("a.rs", &format!("//! A.\n{line}\n")), ["unfinished code"], "{line}");
        }
        let word = ["FIX", "ME"].concat();
        assert_eq!(rules("a.rs", &format!("//! A.\n// {word}: later\n")), ["unfinished code"]);
    }

    #[test]
    fn words_in_strings_and_comments_are_not_code() {
        let source = "//! A.\n// todo!() is refused\nconst A: &str = \"unsafe todo!\";\n";
        assert!(rules("a.rs", source).is_empty());
    }

    #[test]
    fn unsafe_wants_a_place_and_a_reason() {
        let bare = "//! A.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(rules("a.rs", bare), ["unsafe"]);
        assert_eq!(rules(MAY_UNSAFE[0], bare), ["unsafe"]);
        let explained = "//! A.\nfn f() {\n    // SAFETY: g has no duty.\n    unsafe { g() }\n}\n";
        assert!(rules(MAY_UNSAFE[0], explained).is_empty());
        assert!(rules("a.rs", "//! A.\n#![deny(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn long_functions_are_noted() {
        let function =
            |lines: usize| format!("//! A.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        assert!(rules("a.rs", &function(68)).is_empty());
        assert_eq!(rules("a.rs", &function(69)), ["function size"]);
    }

    #[test]
    fn blanks_keep_the_lines_and_drop_the_text() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("a\"b", 'c', '\'')"#, "f(      ,    ,     )"),
            (r##"f(r#"a"b"#) x"##, "f(        ) x"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("var\"s\"", "var   "),
        ];
        for (source, expected) in cases {
            assert_eq!(blank_text(source), expected, "{source}");
        }
    }
}
