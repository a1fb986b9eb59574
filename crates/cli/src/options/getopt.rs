//! Command-line options as getopt_long(3) of the GNU C library reads them.
//!
//! Scripts rely on three habits of it that Rust's parsers lack: long options may be abbreviated
//! (`--no-db`), options may follow positional arguments, and an optional value belongs to its
//! option only when attached (`-vdbg`, `--pidfile=FILE`). The texts of the errors are glibc's.

use std::collections::VecDeque;

use crate::usage::About;

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// The option never takes a value.
    Nothing,
    /// The option takes a value always: attached, or the next argument.
    Value,
    /// The option takes a value only when it is attached.
    MaybeValue,
}

/// One option: its names, whether it takes a value, what it means to the caller and to people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec<T> {
    /// The long name without `--`.
    pub(crate) long: &'static str,
    /// The letter, if it has one.
    pub(crate) short: Option<char>,
    /// Whether a value follows.
    pub(crate) takes: Takes,
    /// Two names with an equal id are one option, and never ambiguous.
    pub(crate) id: T,
    /// What help and completions say.
    pub(crate) about: About,
    /// The name must be spelled out: what begins like it means what it means to the reference.
    pub(crate) is_whole: bool,
}

/// Shorthand for the tables: an option without a letter.
pub(crate) const fn long<T>(long: &'static str, takes: Takes, id: T) -> Spec<T> {
    Spec { long, short: None, takes, id, about: About::HIDDEN, is_whole: false }
}

/// Shorthand for the tables: an option with a letter.
pub(crate) const fn both<T>(short: char, long: &'static str, takes: Takes, id: T) -> Spec<T> {
    Spec { long, short: Some(short), takes, id, about: About::HIDDEN, is_whole: false }
}

impl<T: Copy> Spec<T> {
    /// This option, with what people are told about it.
    pub(crate) const fn with(self, about: About) -> Self {
        Self { about, ..self }
    }

    /// This option, which has no abbreviations.
    pub(crate) const fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// This option, in the table of a program that means more by its options.
    pub(crate) fn map<U>(&self, id: impl Fn(T) -> U) -> Spec<U> {
        let Self { long, short, takes, about, is_whole, .. } = *self;
        Spec { long, short, takes, id: id(self.id), about, is_whole }
    }
}

/// Reads options one by one, so that `-V` acts before a mistake behind it is seen.
#[derive(Debug)]
pub(crate) struct Options<'t, T> {
    table: &'t [Spec<T>],
    rest: VecDeque<String>,
    /// Letters of a bundle (`-hV`) that have not been read yet.
    bundle: VecDeque<char>,
    positional: Vec<String>,
    /// Whether the first positional argument ends the options.
    is_posix: bool,
}

/// An option and its value.
pub(crate) type Found<T> = (T, Option<String>);

impl<'t, T: Copy + PartialEq> Options<'t, T> {
    /// A reader of the options of `args`, which are without the program's name.
    pub(crate) fn new(table: &'t [Spec<T>], args: Vec<String>) -> Self {
        Self {
            table,
            rest: args.into(),
            bundle: VecDeque::new(),
            positional: vec![],
            is_posix: false,
        }
    }

    /// Has options end at the first argument that is none, as with a `+` in the option string: what
    /// follows is somebody else's.
    pub(crate) fn until_positional(self) -> Self {
        Self { is_posix: true, ..self }
    }

    /// The arguments that are not options, in order: complete once `next` has returned `None`.
    pub(crate) fn into_positional(self) -> Vec<String> {
        self.positional
    }

    fn long_option(&mut self, text: &str) -> Result<Found<T>, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let spec = self.look_up(name, text)?;
        match (spec.takes, value) {
            (Takes::Nothing, Some(_)) => {
                Err(format!("option '--{}' doesn't allow an argument", spec.long))
            }
            (Takes::Value, None) => match self.rest.pop_front() {
                Some(value) => Ok((spec.id, Some(value))),
                None => Err(format!("option '--{}' requires an argument", spec.long)),
            },
            (_, value) => Ok((spec.id, value)),
        }
    }

    /// An exact name wins; else the beginning of exactly one option's name.
    fn look_up(&self, name: &str, text: &str) -> Result<&'t Spec<T>, String> {
        if let Some(spec) = self.table.iter().find(|spec| spec.long == name) {
            return Ok(spec);
        }
        let fits: Vec<_> = self
            .table
            .iter()
            .filter(|spec| !spec.is_whole && spec.long.starts_with(name))
            .collect();
        let Some(first) = fits.first().copied() else {
            return Err(format!("unrecognized option '--{text}'"));
        };
        if fits.iter().all(|spec| spec.id == first.id && spec.takes == first.takes) {
            return Ok(first);
        }
        let names: String = fits.iter().map(|spec| format!(" '--{}'", spec.long)).collect();
        Err(format!("option '--{text}' is ambiguous; possibilities:{names}"))
    }

    fn letter(&mut self, letter: char) -> Result<Found<T>, String> {
        let Some(spec) = self.table.iter().find(|spec| spec.short == Some(letter)) else {
            return Err(format!("invalid option -- '{letter}'"));
        };
        if spec.takes == Takes::Nothing {
            return Ok((spec.id, None));
        }
        let attached: String = self.bundle.drain(..).collect();
        if !attached.is_empty() {
            return Ok((spec.id, Some(attached)));
        }
        if spec.takes == Takes::MaybeValue {
            return Ok((spec.id, None));
        }
        match self.rest.pop_front() {
            Some(value) => Ok((spec.id, Some(value))),
            None => Err(format!("option requires an argument -- '{letter}'")),
        }
    }
}

impl<T: Copy + PartialEq> Iterator for Options<'_, T> {
    type Item = Result<Found<T>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(letter) = self.bundle.pop_front() {
                return Some(self.letter(letter));
            }
            let arg = self.rest.pop_front()?;
            if arg == "--" {
                self.positional.extend(self.rest.drain(..));
                return None;
            }
            if let Some(text) = arg.strip_prefix("--") {
                return Some(self.long_option(text));
            }
            match arg.strip_prefix('-') {
                Some(letters) if !letters.is_empty() => self.bundle = letters.chars().collect(),
                _ => {
                    self.positional.push(arg);
                    if self.is_posix {
                        self.positional.extend(self.rest.drain(..));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Takes::{MaybeValue, Nothing, Value};

    const TABLE: &[Spec<char>] = &[
        long("remote", Value, 'r'),
        long("unixctl", Value, 'u'),
        long("run", Value, 'R'),
        both('h', "help", Nothing, 'h'),
        both('V', "version", Nothing, 'V'),
        long("detach", Nothing, 'd'),
        long("pidfile", MaybeValue, 'P'),
        both('v', "verbose", MaybeValue, 'v'),
        long("no-chdir", Nothing, 'c'),
        long("no-dbs", Nothing, 'n'),
        both('p', "private-key", Value, 'p'),
        long("colour", Nothing, 'k'),
        long("color", Nothing, 'k'),
    ];

    /// `d u=ctl | a b`: options with their values, then the positional arguments or the error.
    fn read(args: &str) -> String {
        let args = args.split(' ').filter(|arg| !arg.is_empty()).map(str::to_owned).collect();
        let mut options = Options::new(TABLE, args);
        let mut out = String::new();
        for option in options.by_ref() {
            match option {
                Ok((id, None)) => out += &format!("{id} "),
                Ok((id, Some(value))) => out += &format!("{id}={value} "),
                Err(error) => return out + "! " + &error,
            }
        }
        out + "| " + &options.into_positional().join(" ")
    }

    #[test]
    fn values_and_positional_arguments() {
        for (args, expected) in [
            ("", "| "),
            ("a b", "| a b"),
            ("--remote=punix:x a", "r=punix:x | a"),
            ("--remote punix:x a", "r=punix:x | a"),
            ("--remote --detach a", "r=--detach | a"),
            ("a --detach b --unixctl=c d", "d u=c | a b d"),
            ("--pidfile a", "P | a"),
            ("--pidfile=f a", "P=f | a"),
            ("--pidfile= a", "P= | a"),
            ("--run=x=y", "R=x=y | "),
            ("--detach -- --run -V", "d | --run -V"),
            ("a -- b --", "| a b --"),
            ("- a", "| - a"),
            ("-v a", "v | a"),
            ("-vdbg -V", "v=dbg V | "),
            ("-hVv", "h V v | "),
            ("-hvV", "h v=V | "),
            ("-pkey -p other", "p=key p=other | "),
            ("-p=key", "p==key | "),
        ] {
            assert_eq!(read(args), expected, "{args}");
        }
    }

    #[test]
    fn abbreviations() {
        for (args, expected) in [
            ("--no-d", "n | "),
            ("--no-c", "c | "),
            ("--d", "d | "),
            ("--pid=f", "P=f | "),
            ("--run=x", "R=x | "),
            ("--ru=x", "R=x | "),
            ("--col", "k | "),
        ] {
            assert_eq!(read(args), expected, "{args}");
        }
    }

    #[test]
    fn errors_are_those_of_the_c_library() {
        for (args, expected) in [
            ("--foo", "! unrecognized option '--foo'"),
            ("--foo=bar", "! unrecognized option '--foo=bar'"),
            ("--r", "! option '--r' is ambiguous; possibilities: '--remote' '--run'"),
            ("--r=x", "! option '--r=x' is ambiguous; possibilities: '--remote' '--run'"),
            ("--no", "! option '--no' is ambiguous; possibilities: '--no-chdir' '--no-dbs'"),
            ("--detach=3", "! option '--detach' doesn't allow an argument"),
            ("--det=3", "! option '--detach' doesn't allow an argument"),
            ("--remote", "! option '--remote' requires an argument"),
            ("-p", "! option requires an argument -- 'p'"),
            ("-hZV", "h ! invalid option -- 'Z'"),
            ("a -V --foo", "V ! unrecognized option '--foo'"),
        ] {
            assert_eq!(read(args), expected, "{args}");
        }
    }
}
