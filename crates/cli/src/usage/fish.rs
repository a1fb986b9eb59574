//! Completions for fish: one `complete` a word.

use super::{Complete, Manual, OptionUsage};
use crate::options::getopt::Takes;

/// The script for all programs.
pub(super) fn script(manuals: &[Manual]) -> String {
    let mut script = String::from(
        "# Completions of Weir's programs: put this into ~/.config/fish/completions/weir.fish\n\n\
         # The words so far that are no options, and not the one being typed.\n\
         function __weir_words\n\
         \x20   commandline -opc | string match -v -- '-*'\n\
         end\n\
         # Whether the program `weir WORD` is meant, by its own name or by its word.\n\
         function __weir_is\n\
         \x20   set -l words (__weir_words)\n\
         \x20   test \"$words[1]\" != weir; or test \"$words[2]\" = $argv[1]\n\
         end\n\
         # The words behind the program's name.\n\
         function __weir_rest\n\
         \x20   set -l words (__weir_words)\n\
         \x20   test \"$words[1]\" = weir; and set -e words[1]\n\
         \x20   printf '%s\\n' $words[2..]\n\
         end\n\
         # Whether the command is argv[2] and argument number argv[3], or a later one, comes next.\n\
         function __weir_argument\n\
         \x20   __weir_is $argv[1]; or return 1\n\
         \x20   set -l rest (__weir_rest | string match -v '')\n\
         \x20   test \"$rest[1]\" = $argv[2]; or return 1\n\
         \x20   test (count $rest) $argv[4] $argv[3]\n\
         end\n\
         # Whether argument number argv[2], or a later one, comes next where there are no commands.\n\
         function __weir_place\n\
         \x20   __weir_is $argv[1]; or return 1\n\
         \x20   test (count (__weir_rest | string match -v '')) $argv[3] $argv[2]\n\
         end\n\
         function __weir_no_command\n\
         \x20   __weir_is $argv[1]; and test (count (__weir_rest | string match -v '')) -eq 0\n\
         end\n\n",
    );
    for manual in manuals {
        script += &format!(
            "complete -c weir -f -n 'test (count (__weir_words)) -eq 1' -a {} -d {}\n",
            manual.word,
            quoted(manual.summary)
        );
    }
    let others = super::OTHER_WORDS.join(" ");
    script += &format!(
        "complete -c weir -f -n 'test (count (__weir_words)) -eq 1' -a {}\n",
        quoted(&others)
    );
    for manual in manuals {
        program(&mut script, manual);
    }
    script
}

fn program(script: &mut String, manual: &Manual) {
    let word = manual.word;
    let link = manual.has_link().then(|| (manual.program, String::new()));
    let called = ("weir", format!(" -n '__weir_is {word}'"));
    for (name, condition) in link.into_iter().chain([called]) {
        *script += &format!("\n# {name} {}\n", if name == "weir" { word } else { "" });
        for option in manual.shown_options() {
            *script += &format!("complete -c {name}{condition}{}\n", option_words(option));
        }
        if manual.commands.is_empty() {
            *script += &format!("complete -c {name}{condition} -f\n");
        }
        for (place, complete) in manual.arguments.iter().enumerate() {
            let test = if place + 1 == manual.arguments.len() { "-ge" } else { "-eq" };
            if let Some(words) = words(*complete) {
                let condition = format!("__weir_place {word} {place} {test}");
                *script += &format!("complete -c {name} -n '{condition}' {words}\n");
            }
        }
        for command in manual.all_commands() {
            *script += &format!(
                "complete -c {name} -f -n '__weir_no_command {word}' -a {} -d {}\n",
                command.name,
                quoted(&command.help.replace('\n', " "))
            );
            for (place, complete) in command.complete.iter().enumerate() {
                let test = if place + 1 == command.complete.len() { "-ge" } else { "-eq" };
                let condition =
                    format!("__weir_argument {word} {} {} {test}", command.name, place + 1);
                if let Some(words) = words(*complete) {
                    *script += &format!("complete -c {name} -n '{condition}' {words}\n");
                }
            }
        }
    }
}

fn option_words(option: &OptionUsage) -> String {
    let letter = option.short.map_or(String::new(), |letter| format!(" -s {letter}"));
    let takes = match option.takes {
        Takes::Value => " -r",
        Takes::Nothing | Takes::MaybeValue => "",
    };
    let words = words(option.about.complete).map_or(String::new(), |words| format!(" {words}"));
    format!("{letter} -l {}{takes}{words} -d {}", option.long, quoted(option.about.help))
}

fn words(complete: Complete) -> Option<String> {
    Some(match complete {
        Complete::Nothing => return None,
        Complete::File => "-F".to_owned(),
        Complete::Words(words) => format!("-f -a {}", quoted(&words.join(" "))),
        Complete::Server => "-f -a 'unix: tcp: ssl:'".to_owned(),
        Complete::Database => "-f -a '(weir client -t 1 list-dbs 2>/dev/null)'".to_owned(),
        Complete::Table => {
            "-f -a '(weir client -t 1 --no-headings list-tables 2>/dev/null)'".to_owned()
        }
    })
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
