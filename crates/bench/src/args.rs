//! Command-line options: `--name value`, `--name=value`, and positional words.

use std::str::FromStr;

use crate::Error;

/// The options of one command, taken out one by one; what is left over is an error.
pub(crate) struct Args {
    rest: Vec<String>,
}

impl Args {
    pub(crate) fn new(args: &[String]) -> Self {
        Self { rest: args.to_vec() }
    }

    /// Takes every value of a repeatable option.
    pub(crate) fn all(&mut self, name: &str) -> Result<Vec<String>, Error> {
        let mut values = Vec::new();
        let mut kept = Vec::new();
        let mut words = std::mem::take(&mut self.rest).into_iter();
        while let Some(word) = words.next() {
            if word == name {
                let value =
                    words.next().ok_or_else(|| Error::Usage(format!("{name} needs a value")))?;
                values.push(value);
            } else if let Some(value) = word.strip_prefix(name).and_then(|w| w.strip_prefix('=')) {
                values.push(value.to_owned());
            } else {
                kept.push(word);
            }
        }
        self.rest = kept;
        Ok(values)
    }

    /// Takes an option that may be given once (the last one counts).
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Error> {
        Ok(self.all(name)?.pop())
    }

    /// Takes a number, or anything else that parses.
    pub(crate) fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Error> {
        self.text(name)?.map(|text| parse(name, &text)).transpose()
    }

    /// Takes a comma-separated list.
    pub(crate) fn list<T: FromStr>(&mut self, name: &str) -> Result<Option<Vec<T>>, Error> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.split(',').map(|word| parse(name, word)).collect::<Result<_, _>>().map(Some)
    }

    /// Takes the list of those of `all` that `name` names; without it, all of them.
    pub(crate) fn choose<T>(
        &mut self,
        name: &str,
        all: &'static [T],
        name_of: impl Fn(&T) -> &str,
    ) -> Result<Vec<&'static T>, Error> {
        let Some(words) = self.list::<String>(name)? else { return Ok(all.iter().collect()) };
        let find = |word: &String| {
            all.iter().find(|one| name_of(one) == word).ok_or_else(|| {
                let names: Vec<_> = all.iter().map(&name_of).collect();
                Error::Usage(format!("{name} {word}: there are {}", names.join(", ")))
            })
        };
        words.iter().map(find).collect()
    }

    /// Takes a flag.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|word| word != name);
        self.rest.len() != before
    }

    /// Ends a scenario's options: nothing may be left.
    pub(crate) fn finish(&self, scenario: &str) -> Result<(), Error> {
        match self.rest.first() {
            Some(word) => Err(Error::Usage(format!("{scenario}: unexpected '{word}'"))),
            None => Ok(()),
        }
    }

    /// The positional words, once all options are taken.
    pub(crate) fn words(self) -> Result<Vec<String>, Error> {
        match self.rest.iter().find(|word| word.starts_with("--")) {
            Some(word) => Err(Error::Usage(format!("unknown option {word}"))),
            None => Ok(self.rest),
        }
    }
}

fn parse<T: FromStr>(name: &str, text: &str) -> Result<T, Error> {
    text.trim().parse().map_err(|_| Error::Usage(format!("{name}: '{text}' is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args::new(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn both_spellings_and_repetition_are_understood() {
        let mut args = args(&["--peer", "a=/x", "out", "--rows=7", "--peer=b=/y", "--fast"]);
        assert_eq!(args.all("--peer").unwrap(), ["a=/x", "b=/y"]);
        assert_eq!(args.value::<usize>("--rows").unwrap(), Some(7));
        assert!(args.flag("--fast"));
        assert_eq!(args.words().unwrap(), ["out"]);
    }

    #[test]
    fn leftovers_and_nonsense_are_refused() {
        assert!(args(&["--bogus"]).words().is_err());
        assert!(args(&["--bogus"]).finish("set").is_err() && args(&[]).finish("set").is_ok());
        assert!(args(&["--rows"]).text("--rows").is_err());
        assert!(args(&["--rows", "many"]).value::<usize>("--rows").is_err());
        assert_eq!(args(&["--rows", "1,2"]).list::<u32>("--rows").unwrap(), Some(vec![1, 2]));
    }
}
