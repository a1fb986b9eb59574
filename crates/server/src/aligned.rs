//! Lines of words below each other, for the answers of admin commands.

/// Lines of words, those of a column below each other: the first `left` columns begin, the others end at
/// one place. Names have any length, which a width of `format!` has not.
pub(crate) fn aligned<const N: usize>(lines: &[[String; N]], left: usize) -> String {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for line in lines {
        let words = line.iter().zip(widths).enumerate().map(|(at, (word, width))| {
            let missing = " ".repeat(width - word.chars().count());
            if at < left { [word, &*missing].concat() } else { [&missing, word.as_str()].concat() }
        });
        out += words.collect::<Vec<String>>().join("  ").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn names_of_any_length_are_aligned() {
        let long = "x".repeat(70_000);
        let lines = [[long.clone(), "a".into()], ["ä".into(), "b".into()]];
        let expected = format!("{long}  a\nä{}  b\n", " ".repeat(69_999));
        assert_eq!(aligned(&lines, 2), expected);
    }

    #[test]
    fn numbers_end_at_one_place() {
        let lines = [["a", "10", "b"], ["ab", "7", ""]].map(|line| line.map(str::to_owned));
        assert_eq!(aligned(&lines, 1), "a   10  b\nab   7\n");
    }
}
