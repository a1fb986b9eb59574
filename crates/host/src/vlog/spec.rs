//! The argument of `-v` and of `vlog/set` (ovs-appctl(8)).

use crate::vlog::level::{Destination, Level};
use crate::vlog::modules::MODULES;

/// Facility codes of syslog, unshifted.
const FACILITIES: &[(&str, u8)] = &[
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("clock", 9),
    ("ftp", 11),
    ("ntp", 12),
    ("audit", 13),
    ("alert", 14),
    ("clock2", 15),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// A change of what is logged. `None` is "any".
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spec {
    Levels { module: Option<&'static str>, destination: Option<Destination>, level: Level },
    Pattern { destination: Option<Destination>, pattern: String },
    Facility(u8),
}

impl Spec {
    /// Reads words in any order, separated by spaces, commas or colons.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (first, rest) = next_word(text);
        match first {
            Some(word) if word.eq_ignore_ascii_case("PATTERN") => parse_pattern(rest),
            Some(word) if word.eq_ignore_ascii_case("FACILITY") => parse_facility(rest),
            _ => parse_levels(text),
        }
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, ' ' | ',' | ':' | '\t')
}

/// The first word, and what follows the separator behind it.
fn next_word(text: &str) -> (Option<&str>, &str) {
    let text = text.trim_start_matches(is_separator);
    if text.is_empty() {
        return (None, "");
    }
    match text.find(is_separator) {
        Some(end) => (Some(&text[..end]), &text[end + 1..]),
        None => (Some(text), ""),
    }
}

fn is_any(word: &str) -> bool {
    word.eq_ignore_ascii_case("ANY")
}

fn parse_pattern(text: &str) -> Result<Spec, String> {
    let (word, pattern) = next_word(text);
    let word = word.ok_or("missing destination")?;
    let destination = match Destination::parse(word) {
        Some(destination) => Some(destination),
        None if is_any(word) => None,
        None => return Err(format!("unknown destination \"{word}\"")),
    };
    Ok(Spec::Pattern { destination, pattern: pattern.to_owned() })
}

fn parse_facility(text: &str) -> Result<Spec, String> {
    let known = FACILITIES.iter().find(|(known, _)| known.eq_ignore_ascii_case(text));
    known.map(|(_, code)| Spec::Facility(code << 3)).ok_or_else(|| "invalid facility".to_owned())
}

fn parse_levels(text: &str) -> Result<Spec, String> {
    let (mut module, mut destination, mut level) = (None, None, None);
    for word in text.split(is_separator).filter(|word| !word.is_empty()) {
        if is_any(word) {
            continue;
        }
        if let Some(found) = Level::parse(word) {
            set_once(&mut level, found, "levels")?;
        } else if let Some(found) = Destination::parse(word) {
            set_once(&mut destination, found, "destinations")?;
        } else if let Some(found) = find_module(word) {
            set_once(&mut module, found, "modules")?;
        } else {
            return Err(format!("no destination, level, or module \"{word}\""));
        }
    }
    Ok(Spec::Levels { module, destination, level: level.unwrap_or(Level::Dbg) })
}

fn set_once<T>(place: &mut Option<T>, value: T, what: &str) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("cannot specify multiple {what}")),
    }
}

/// A module by name, `-` and `_` alike, in any case.
pub(crate) fn find_module(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    MODULES.iter().find(|module| module.eq_ignore_ascii_case(&name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(
        text: &str,
        module: Option<&'static str>,
        destination: Option<Destination>,
        level: Level,
    ) {
        assert_eq!(Spec::parse(text), Ok(Spec::Levels { module, destination, level }), "{text}");
    }

    #[test]
    fn words_come_in_any_order_with_any_separator() {
        levels("jsonrpc:file:dbg", Some("jsonrpc"), Some(Destination::File), Level::Dbg);
        levels("off,console", None, Some(Destination::Console), Level::Off);
        levels("any any warn", None, None, Level::Warn);
        levels("", None, None, Level::Dbg);
        levels("syslog", None, Some(Destination::Syslog), Level::Dbg);
    }

    #[test]
    fn patterns_and_facilities() {
        let pattern = "%c: %m".to_owned();
        let destination = Some(Destination::Console);
        assert_eq!(
            Spec::parse("PATTERN:console:%c: %m"),
            Ok(Spec::Pattern { destination, pattern })
        );
        assert_eq!(Spec::parse("FACILITY:local3"), Ok(Spec::Facility(152)));
    }

    #[test]
    fn errors_are_the_texts_of_the_reference() {
        for (text, error) in [
            ("nope", "no destination, level, or module \"nope\""),
            ("jsonrpc:file:dbg:nope", "no destination, level, or module \"nope\""),
            ("jsonrpc dbg info", "cannot specify multiple levels"),
            ("syslog:off file:off", "cannot specify multiple destinations"),
            ("jsonrpc:reconnect:dbg", "cannot specify multiple modules"),
            ("PATTERN:nope:%m", "unknown destination \"nope\""),
            ("PATTERN", "missing destination"),
            ("FACILITY:nope", "invalid facility"),
            ("FACILITY:local3:off", "invalid facility"),
            ("FACILITY", "invalid facility"),
        ] {
            assert_eq!(Spec::parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
