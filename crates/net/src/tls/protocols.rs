//! `--ssl-protocols`: a list or a range of TLS versions (ovsdb-server(1), "SSL/TLS Options").

use super::{Line, Severity};

/// The versions there are, by rising age.
const NAMES: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// The versions that are enabled, as indexes of `TLSv1.2` and `TLSv1.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocols {
    pub(crate) tls12: bool,
    pub(crate) tls13: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { tls12: true, tls13: true }
    }
}

/// Reads the option; `None` leaves things as they are. What is to be said goes to `log`.
pub(crate) fn parse(text: &str, log: &mut Vec<Line>) -> Option<Protocols> {
    let (words, is_open, is_range) = words(text);
    if words.is_empty() {
        log.push(Line::new(Severity::Error, "SSL/TLS protocol settings invalid"));
        return None;
    }
    let place = |word: &str| NAMES.iter().position(|name| *name == word);
    let unknown: Vec<&str> = words.iter().copied().filter(|word| place(word).is_none()).collect();
    if !unknown.is_empty() {
        for word in unknown {
            let text = format!("{word}: SSL/TLS protocol not recognized");
            log.push(Line::new(Severity::Warning, text));
        }
        return None;
    }
    let places: Vec<usize> = words.iter().filter_map(|word| place(word)).collect();
    let (first, last) = (*places.iter().min()?, *places.iter().max()?);
    warn_of_holes(&places, is_open || is_range, log);
    let range = if is_open {
        format!("{} or later", NAMES[first])
    } else {
        format!("{} - {}", NAMES[first], NAMES[last])
    };
    log.push(Line::new(Severity::Debug, format!("Enabled protocol range: {range}")));
    let is_in = |place: usize| place >= first && (is_open || place <= last);
    Some(Protocols { tls12: is_in(0), tls13: is_in(1) })
}

/// The words of the option, whether it is `X+`, and whether it is `X-Y`.
fn words(text: &str) -> (Vec<&str>, bool, bool) {
    if let Some(first) = text.strip_suffix('+') {
        (vec![first], true, false)
    } else if let Some((first, last)) = text.split_once('-') {
        (vec![first, last], false, true)
    } else {
        let words = text.split([' ', ',', '\t']).filter(|word| !word.is_empty());
        (words.collect(), false, false)
    }
}

/// A list names versions one by one, but only ranges can be enabled.
fn warn_of_holes(places: &[usize], is_range: bool, log: &mut Vec<Line>) {
    let (Some(&first), Some(&last)) = (places.iter().min(), places.iter().max()) else { return };
    for (place, name) in NAMES.iter().enumerate().take(last).skip(first + 1) {
        if !is_range && !places.contains(&place) {
            let text =
                format!("SSL/TLS protocol {name} is not configured, but will be enabled anyway.");
            log.push(Line::new(Severity::Warning, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(text: &str) -> (Option<(bool, bool)>, Vec<String>) {
        let mut log = Vec::new();
        let protocols = parse(text, &mut log).map(|found| (found.tls12, found.tls13));
        (protocols, log.into_iter().map(|line| line.text).collect())
    }

    #[test]
    fn lists_and_ranges() {
        for (text, expected, said) in [
            ("TLSv1.2", (true, false), "TLSv1.2 - TLSv1.2"),
            ("TLSv1.3", (false, true), "TLSv1.3 - TLSv1.3"),
            ("TLSv1.2,TLSv1.3", (true, true), "TLSv1.2 - TLSv1.3"),
            ("TLSv1.3 TLSv1.2", (true, true), "TLSv1.2 - TLSv1.3"),
            ("TLSv1.2-TLSv1.3", (true, true), "TLSv1.2 - TLSv1.3"),
            ("TLSv1.3-TLSv1.2", (true, true), "TLSv1.2 - TLSv1.3"),
            ("TLSv1.2+", (true, true), "TLSv1.2 or later"),
            ("TLSv1.3+", (false, true), "TLSv1.3 or later"),
        ] {
            let said = vec![format!("Enabled protocol range: {said}")];
            assert_eq!(enabled(text), (Some(expected), said), "{text}");
        }
    }

    #[test]
    fn what_is_older_or_mixed_is_not_recognized() {
        for (text, word) in [
            ("TLSv1.1", "TLSv1.1"),
            ("TLSv1,TLSv1.2", "TLSv1"),
            ("TLSv1.2,TLSv1.3+", "TLSv1.2,TLSv1.3"),
            ("TLSv1.2,TLSv1.2-TLSv1.3", "TLSv1.2,TLSv1.2"),
            ("tlsv1.2", "tlsv1.2"),
        ] {
            let said = vec![format!("{word}: SSL/TLS protocol not recognized")];
            assert_eq!(enabled(text), (None, said), "{text}");
        }
        assert_eq!(enabled(" ,").1, ["SSL/TLS protocol settings invalid"]);
    }
}
