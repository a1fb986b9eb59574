//! What the programs tell people about themselves.
//!
//! Commands and options stand in one table a program. It is what the command line is read by, and
//! `--help`, the man page and the completions of the shells are printed from it.

pub(crate) mod about;
mod bash;
mod fish;
mod help;
mod man;
mod own;
mod zsh;

use std::process::ExitCode;

use crate::dirs::Dirs;
use crate::options::getopt::{Spec, Takes};
use crate::program::{Failure, Outcome, say};

/// What may stand in the place of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Complete {
    /// The argument is nothing that could be listed.
    Nothing,
    /// The argument is a file.
    File,
    /// The argument is one of these words.
    Words(&'static [&'static str]),
    /// The argument is a connection method.
    Server,
    /// The argument is a database of the default server.
    Database,
    /// The argument is a table of the default database of the default server.
    Table,
}

/// What people are told about an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The heading in the help that the option stands under; none for an option that is not shown.
    pub(crate) section: &'static str,
    /// What the option's value is called.
    pub(crate) value: &'static str,
    /// One line about the option.
    pub(crate) help: &'static str,
    /// What the option's value may be.
    pub(crate) complete: Complete,
}

impl About {
    /// What is told of an option that is understood and not shown: nothing.
    pub(crate) const HIDDEN: Self = about("", "", "");

    /// What is told of this option, with what the value may be.
    pub(crate) const fn complete(self, complete: Complete) -> Self {
        Self { complete, ..self }
    }
}

/// What is told of an option, short for the tables.
pub(crate) const fn about(section: &'static str, value: &'static str, help: &'static str) -> About {
    About { section, value, help, complete: Complete::Nothing }
}

/// What people are told about a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandUsage {
    /// The command's name.
    pub(crate) name: &'static str,
    /// The command's arguments.
    pub(crate) args: &'static str,
    /// What the command does; lines are wrapped when shown.
    pub(crate) help: &'static str,
    /// What each argument may be; the last one stands for all that follow.
    pub(crate) complete: &'static [Complete],
}

/// Commands under one heading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandGroup {
    /// The heading of the commands.
    pub(crate) title: &'static str,
    /// The commands under the heading.
    pub(crate) commands: &'static [CommandUsage],
}

/// An option, as far as people are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionUsage {
    /// The long name without `--`.
    pub(crate) long: &'static str,
    /// The letter, if it has one.
    pub(crate) short: Option<char>,
    /// Whether a value follows.
    pub(crate) takes: Takes,
    /// What else people are told about the option.
    pub(crate) about: About,
}

/// All about one program. In every text `@DB@`, `@SCHEMA@`, `@SOCK@`, `@RUN@`, `@LOGS@` and
/// `@PROGRAM@` stand for the places of this machine and the program's name.
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    /// The name of the program's link, or `weir WORD` for one that has none.
    pub(crate) program: &'static str,
    /// What stands behind `weir` to call the program.
    pub(crate) word: &'static str,
    /// One line about the program.
    pub(crate) summary: &'static str,
    /// What stands behind the program's name, one line for each form.
    pub(crate) usage: &'static [&'static str],
    /// What somebody should know first; paragraphs are separated by an empty line.
    pub(crate) intro: &'static str,
    /// The commands; none for a program that has only options.
    pub(crate) commands: &'static [CommandGroup],
    /// What each argument may be where there are no commands; the last one stands for all that
    /// follow.
    pub(crate) arguments: &'static [Complete],
    /// The headings of the options, in order.
    pub(crate) sections: &'static [&'static str],
    /// Headings and texts behind the options; printed as they are.
    pub(crate) notes: &'static [(&'static str, &'static str)],
    /// The options, from [`options`].
    pub(crate) options: Vec<OptionUsage>,
}

/// A table of options without what they mean to the program.
pub(crate) fn options<T>(table: &[Spec<T>]) -> Vec<OptionUsage> {
    let usage = |spec: &Spec<T>| OptionUsage {
        long: spec.long,
        short: spec.short,
        takes: spec.takes,
        about: spec.about,
    };
    table.iter().map(usage).collect()
}

/// Every option as `--option` lists them.
pub(crate) fn option_list<T>(table: &[Spec<T>]) -> String {
    let mut list = String::new();
    for spec in table {
        let (equals, arg) = match spec.takes {
            Takes::Nothing => ("", ""),
            Takes::Value => ("=", "ARG"),
            Takes::MaybeValue => ("=", "[ARG]"),
        };
        list += &format!("--{}{equals}{arg}\n", spec.long);
        if let Some(letter) = spec.short {
            list += &format!("-{letter} {arg}\n");
        }
    }
    list
}

impl Manual {
    /// The name of the program's man page.
    fn page(&self) -> String {
        self.program.replace(' ', "-")
    }

    /// Whether the program can be called by its name alone.
    fn has_link(&self) -> bool {
        !self.program.contains(' ')
    }

    /// All commands, without their headings.
    fn all_commands(&self) -> impl Iterator<Item = &'static CommandUsage> {
        self.commands.iter().flat_map(|group| group.commands)
    }

    /// The options that are shown, in the table's order.
    fn shown_options(&self) -> impl Iterator<Item = &OptionUsage> {
        self.options.iter().filter(|option| !option.about.section.is_empty())
    }

    /// The options under one heading.
    fn options_of(&self, section: &str) -> impl Iterator<Item = &OptionUsage> {
        self.options.iter().filter(move |option| option.about.section == section)
    }

    /// A text with the places of this machine in it.
    fn fill_in(&self, text: &str, dirs: &Dirs) -> String {
        if !text.contains('@') {
            return text.to_owned();
        }
        text.replace("@DB@", &dirs.default_database().display().to_string())
            .replace("@SCHEMA@", &dirs.default_schema().display().to_string())
            .replace("@SOCK@", &dirs.run.join("db.sock").display().to_string())
            .replace("@RUN@", &dirs.run.display().to_string())
            .replace("@LOGS@", &dirs.log.display().to_string())
            .replace("@PROGRAM@", self.program)
    }
}

impl OptionUsage {
    /// `--name=VALUE`, as it is typed.
    fn spelled(&self) -> String {
        let (long, value) = (self.long, self.about.value);
        match self.takes {
            Takes::Nothing => format!("--{long}"),
            Takes::Value => format!("--{long}={value}"),
            Takes::MaybeValue => format!("--{long}[={value}]"),
        }
    }
}

/// All programs that have a manual.
fn manuals() -> Vec<Manual> {
    vec![
        crate::server::manual(),
        crate::client::manual(),
        crate::tool::manual(),
        crate::appctl::manual(),
        crate::up::manual(),
        crate::status::manual(),
        crate::client::watch_manual(),
        crate::client::transact_manual(),
        crate::client::call_manual(),
        own::man(),
        own::completions(),
    ]
}

/// Runs `weir man PROGRAM`; the program may be named by its word behind `weir`.
pub(crate) fn man_page(typed: &str, args: Vec<String>) -> Outcome {
    let Some(words) = own::words(typed, args, &own::man())? else { return Ok(ExitCode::SUCCESS) };
    let manuals = manuals();
    let wanted = |manual: &&Manual| {
        words.first().is_some_and(|name| *name == manual.page() || name == manual.word)
    };
    let Some(manual) = manuals.iter().find(wanted) else {
        let names: Vec<String> = manuals.iter().map(Manual::page).collect();
        return Err(Failure::new(format!("usage: weir man PROGRAM|WORD ({})", names.join(", "))));
    };
    say(&manual.man(&Dirs::from_env()))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir completions SHELL`.
pub(crate) fn completions(typed: &str, args: Vec<String>) -> Outcome {
    let manual = own::completions();
    let Some(words) = own::words(typed, args, &manual)? else { return Ok(ExitCode::SUCCESS) };
    let manuals = manuals();
    let script = match words.first().map(String::as_str) {
        Some("bash") => bash::script(&manuals),
        Some("zsh") => zsh::script(&manuals),
        Some("fish") => fish::script(&manuals),
        _ => return Err(Failure::new("usage: weir completions bash|zsh|fish")),
    };
    say(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The words of `weir` that have no manual of their own.
const OTHER_WORDS: [&str; 2] = ["bench", "version"];

/// An option as a completion types it; a value follows `=`.
fn typed(option: &OptionUsage) -> String {
    let equals = if option.takes == Takes::Value { "=" } else { "" };
    format!("--{}{equals}", option.long)
}
