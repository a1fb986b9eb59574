//! `--help`: the manual as plain text.

use super::{Manual, OptionUsage};
use crate::dirs::Dirs;

/// Lines are wrapped to this many columns.
const WIDTH: usize = 80;

/// The column where what is said about an option begins.
const TEXT_COLUMN: usize = 28;

/// The column where what is said about a command begins.
const COMMAND_COLUMN: usize = 6;

impl Manual {
    /// The text of `--help`.
    pub(crate) fn help(&self, dirs: &Dirs) -> String {
        let mut text = format!("{}: {}\n", self.program, self.summary);
        for (place, form) in self.usage.iter().enumerate() {
            let start = if place == 0 { "usage:" } else { "      " };
            text += &format!("{start} {} {form}\n", self.program);
        }
        for paragraph in self.intro.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            text.push('\n');
            wrap(&mut text, &self.fill_in(paragraph, dirs), 0);
        }
        for group in self.commands {
            text += &format!("\n{}:\n", group.title);
            for command in group.commands {
                let line = format!("  {} {}", command.name, command.args);
                text += line.trim_end();
                text.push('\n');
                wrap(&mut text, command.help, COMMAND_COLUMN);
            }
        }
        for section in self.sections {
            text += &format!("\n{section}:\n");
            self.options_of(section).for_each(|option| option_lines(&mut text, option));
        }
        for (title, note) in self.notes {
            text += &format!("\n{title}:\n");
            note.lines().for_each(|line| text += &format!("{}\n", format!("  {line}").trim_end()));
        }
        self.fill_in(&text, dirs)
    }
}

fn option_lines(text: &mut String, option: &OptionUsage) {
    let letter = option.short.map_or(String::new(), |letter| format!("-{letter}, "));
    let start = format!("  {letter}{}", option.spelled());
    if start.len() + 2 <= TEXT_COLUMN {
        let mut lines = String::new();
        wrap(&mut lines, option.about.help, TEXT_COLUMN);
        text.push_str(&start);
        text.push_str(lines.get(start.len()..).unwrap_or("\n"));
    } else {
        *text += &format!("{start}\n");
        wrap(text, option.about.help, TEXT_COLUMN);
    }
}

/// Appends words, wrapped, each line indented.
fn wrap(text: &mut String, words: &str, indent: usize) {
    let mut column = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.extend(std::iter::repeat_n(' ', indent));
            column = indent + length;
        } else {
            text.push(' ');
            column += 1 + length;
        }
        text.push_str(word);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_wrapped_and_indented() {
        let mut text = String::new();
        wrap(&mut text, &"word ".repeat(20), 4);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= WIDTH && line.starts_with("    word")));
    }
}
