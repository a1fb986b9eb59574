//! What people are told about `weir man` and `weir completions` themselves.

use super::{Complete, Manual, about, options};
use crate::dirs::Dirs;
use crate::options::getopt::{Options, Spec, Takes, both};
use crate::program::{Failure, say};

/// The options of `weir man` and `weir completions`.
const TABLE: &[Spec<()>] = &[both('h', "help", Takes::Nothing, ()).with(about::HELP)];

/// What `weir man` knows a page of.
const PAGES: &[&str] = &[
    "server",
    "client",
    "tool",
    "appctl",
    "up",
    "status",
    "watch",
    "transact",
    "call",
    "man",
    "completions",
];

const SHELLS: &[&str] = &["bash", "zsh", "fish"];

/// What people are told about `weir man`.
pub(super) fn man() -> Manual {
    Manual {
        program: "weir man",
        word: "man",
        summary: "prints the man page of a program",
        usage: &["PROGRAM"],
        intro: "PROGRAM is the name of a program, such as ovsdb-client, or the word behind weir, \
                such as status. The page is made for this machine, in the form that man(1) \
                reads.",
        commands: &[],
        arguments: &[Complete::Words(PAGES), Complete::Nothing],
        sections: &[about::OTHER],
        notes: &[(
            "Examples",
            "@PROGRAM@ ovsdb-client | man -l -\n\
             @PROGRAM@ status > /usr/local/share/man/man1/weir-status.1",
        )],
        options: options(TABLE),
    }
}

/// What people are told about `weir completions`.
pub(super) fn completions() -> Manual {
    Manual {
        program: "weir completions",
        word: "completions",
        summary: "prints completions of all programs for a shell",
        usage: &["bash|zsh|fish"],
        intro: "The first lines of what is printed say where it belongs.",
        commands: &[],
        arguments: &[Complete::Words(SHELLS), Complete::Nothing],
        sections: &[about::OTHER],
        notes: &[("Example", "source <(@PROGRAM@ bash)")],
        options: options(TABLE),
    }
}

/// The words of a command line of `weir man` or `weir completions`; none once it has been answered
/// with the help.
pub(super) fn words(
    typed: &str,
    args: Vec<String>,
    manual: &Manual,
) -> Result<Option<Vec<String>>, Failure> {
    let mut options = Options::new(TABLE, args);
    if let Some(option) = options.next() {
        option.map_err(|text| Failure::usage(typed, &text))?;
        say(&manual.help(&Dirs::from_env()))?;
        return Ok(None);
    }
    Ok(Some(options.into_positional()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_offered() {
        let words: Vec<&str> = super::super::manuals().iter().map(|manual| manual.word).collect();
        assert_eq!(words, PAGES);
    }
}
