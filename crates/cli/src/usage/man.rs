//! `weir man PROGRAM`: the manual as a man page (groff_man(7)).

use super::Manual;
use crate::dirs::Dirs;
use crate::program::WEIR_VERSION;

impl Manual {
    /// The source of the man page.
    pub(crate) fn man(&self, dirs: &Dirs) -> String {
        let (name, title) = (self.program, self.page().to_uppercase());
        let mut page = format!(".TH {} 1 \"\" \"Weir {WEIR_VERSION}\" \"Weir\"\n", roff(&title));
        page +=
            &format!(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n", roff(&self.page()), roff(self.summary));
        for (place, form) in self.usage.iter().enumerate() {
            let separator = if place > 0 { ".br\n" } else { "" };
            page += &format!("{separator}.B {}\n{}\n", roff(name), roff(form));
        }
        page += ".SH DESCRIPTION\n";
        for paragraph in self.intro.split("\n\n") {
            page += &format!(".PP\n{}\n", roff(&paragraph.replace('\n', " ")));
        }
        if !self.commands.is_empty() {
            page += ".SH COMMANDS\n";
        }
        for group in self.commands {
            page += &format!(".SS {}\n", roff(group.title));
            for command in group.commands {
                let (name, args) = (roff(command.name), roff(command.args));
                page += &format!(".TP\n\\fB{name}\\fR {args}\n{}\n", roff(command.help));
            }
        }
        page += ".SH OPTIONS\n";
        for section in self.sections {
            page += &format!(".SS {}\n", roff(section));
            for option in self.options_of(section) {
                let letter = option.short.map_or(String::new(), |c| format!("\\fB\\-{c}\\fR, "));
                let (spelled, help) = (roff(&option.spelled()), roff(option.about.help));
                page += &format!(".TP\n{letter}\\fB{spelled}\\fR\n{help}\n");
            }
        }
        for (title, note) in self.notes {
            page += &format!(".SH {}\n.nf\n", roff(&title.to_uppercase()));
            note.lines().for_each(|line| page += &format!("{}\n", roff(line)));
            page += ".fi\n";
        }
        self.fill_in(&page, dirs)
    }
}

/// Text with what roff would take for itself made harmless.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.strip_prefix(['.', '\'']) {
        Some(_) => format!("\\&{escaped}"),
        None => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_a_request_to_roff() {
        for (text, expected) in
            [(".so x", "\\&.so x"), ("'x", "\\&'x"), ("a\\b", "a\\eb"), ("--x", "\\-\\-x")]
        {
            assert_eq!(roff(text), expected);
        }
    }
}
