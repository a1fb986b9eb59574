//! Completions for zsh, by its own `_arguments`.

use super::{Complete, Manual, OptionUsage};
use crate::options::getopt::Takes;

/// The script for all programs.
pub(super) fn script(manuals: &[Manual]) -> String {
    let links = || manuals.iter().filter(|manual| manual.has_link());
    let names: Vec<&str> = links().map(|manual| manual.program).collect();
    let mut script = format!(
        "#compdef weir {}\n# Completions of Weir's programs: put this into a folder of $fpath as \
         _weir\n\n_weir_databases() {{ compadd -- ${{(f)\"$(weir client -t 1 list-dbs \
         2>/dev/null)\"}} }}\n_weir_tables() {{ compadd -- ${{(f)\"$(weir client -t 1 \
         --no-headings list-tables 2>/dev/null)\"}} }}\n_weir_servers() {{ compadd -S '' -- unix: \
         tcp: ssl: }}\n",
        names.join(" ")
    );
    for manual in manuals {
        program(&mut script, manual);
    }
    script += "\n_weir_program() {\n    local -a words_of_weir=(\n";
    for manual in manuals {
        script += &format!("        {}\n", quoted(&described(manual.word, manual.summary)));
    }
    for word in super::OTHER_WORDS {
        script += &format!("        {word}\n");
    }
    script += "    )\n    if ((CURRENT == 2)); then _describe command words_of_weir; return; fi\n    \
               local word=$words[2]\n    shift words; ((CURRENT--))\n    case $word in\n";
    for manual in manuals {
        script += &format!("    {}) _weir_{} ;;\n", manual.word, manual.word);
    }
    script += "    esac\n}\n\ncase $service in\n";
    for manual in links() {
        script += &format!("{}) _weir_{} ;;\n", manual.program, manual.word);
    }
    script += "*) _weir_program ;;\nesac\n";
    script
}

fn program(script: &mut String, manual: &Manual) {
    *script += &format!("\n_weir_{}() {{\n    local state\n    _arguments -s", manual.word);
    for option in manual.shown_options() {
        for specification in option_specifications(option) {
            *script += &format!(" \\\n        {}", quoted(&specification));
        }
    }
    if manual.commands.is_empty() {
        for (place, complete) in manual.arguments.iter().enumerate() {
            let last = place + 1 == manual.arguments.len();
            let number = if last { "*".to_owned() } else { (place + 1).to_string() };
            if let Some(action) = action(*complete) {
                *script += &format!(" \\\n        '{number}:argument:{action}'");
            }
        }
        *script += "\n}\n";
        return;
    }
    *script += " \\\n        '1:command:->command' '*:argument:->argument'\n    \
                case $state in\n    command)\n        local -a commands=(\n";
    for command in manual.all_commands() {
        *script += &format!("            {}\n", quoted(&described(command.name, command.help)));
    }
    *script += "        )\n        _describe command commands ;;\n    argument)\n        \
                local -a given=(${words:#-*})\n        case $given[2] in\n";
    for command in manual.all_commands().filter(|command| !command.complete.is_empty()) {
        *script +=
            &format!("        {})\n            case $((${{#given}} - 2)) in\n", command.name);
        for (place, complete) in command.complete.iter().enumerate() {
            let last = place + 1 == command.complete.len();
            let number = if last { "*".to_owned() } else { (place + 1).to_string() };
            if let Some(action) = action(*complete) {
                *script += &format!("            {number}) {action} ;;\n");
            }
        }
        *script += "            esac ;;\n";
    }
    *script += "        esac ;;\n    esac\n}\n";
}

/// `--name=[help]:VALUE:action`, and the same with the letter.
fn option_specifications(option: &OptionUsage) -> Vec<String> {
    let help = format!("[{}]", escaped(option.about.help, "[]"));
    let value = escaped(option.about.value, ":");
    let action = action(option.about.complete).unwrap_or_else(|| " ".to_owned());
    let (sign, argument) = match option.takes {
        Takes::Nothing => ("", String::new()),
        Takes::Value => ("=", format!(":{value}:{action}")),
        Takes::MaybeValue => ("=-", format!("::{value}:{action}")),
    };
    let mut list = vec![format!("--{}{sign}{help}{argument}", option.long)];
    if let Some(letter) = option.short {
        let sign = if option.takes == Takes::MaybeValue { "-" } else { "" };
        let sign = if option.takes == Takes::Value { "+" } else { sign };
        list.push(format!("-{letter}{sign}{help}{argument}"));
    }
    list
}

fn action(complete: Complete) -> Option<String> {
    Some(match complete {
        Complete::Nothing => return None,
        Complete::File => "_files".to_owned(),
        Complete::Words(words) => format!("compadd -- {}", words.join(" ")),
        Complete::Server => "_weir_servers".to_owned(),
        Complete::Database => "_weir_databases".to_owned(),
        Complete::Table => "_weir_tables".to_owned(),
    })
}

fn described(name: &str, help: &str) -> String {
    format!("{name}:{}", help.replace('\n', " "))
}

fn escaped(text: &str, special: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if special.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
