//! Completions for bash: one function a program.

use super::{Complete, Manual};
use crate::options::getopt::Takes;

/// The script for all programs.
pub(super) fn script(manuals: &[Manual]) -> String {
    let mut script = String::from(
        "# Completions of Weir's programs: source this, or put it into\n\
         # /usr/share/bash-completion/completions/weir\n\n\
         # What may come: a kind and, for words, the words.\n\
         _weir_reply() {\n\
         \x20   local cur=$1 kind=$2; shift 2\n\
         \x20   case $kind in\n\
         \x20   words) COMPREPLY=($(compgen -W \"$*\" -- \"$cur\")) ;;\n\
         \x20   file) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n\
         \x20   server) compopt -o nospace; COMPREPLY=($(compgen -W 'unix: tcp: ssl:' -- \"$cur\")) ;;\n\
         \x20   database) COMPREPLY=($(compgen -W \"$(weir client -t 1 list-dbs 2>/dev/null)\" -- \"$cur\")) ;;\n\
         \x20   table) COMPREPLY=($(compgen -W \"$(weir client -t 1 --no-headings list-tables 2>/dev/null)\" -- \"$cur\")) ;;\n\
         \x20   esac\n\
         }\n",
    );
    for manual in manuals {
        program(&mut script, manual);
    }
    let words: Vec<&str> = manuals.iter().map(|manual| manual.word).collect();
    script += &format!(
        "\n_weir() {{\n    if ((COMP_CWORD == 1)); then\n        \
         _weir_reply \"${{COMP_WORDS[1]}}\" words {} {}\n        return\n    fi\n    \
         case ${{COMP_WORDS[1]}} in\n",
        words.join(" "),
        super::OTHER_WORDS.join(" ")
    );
    for manual in manuals {
        script += &format!("    {}) {} 2 ;;\n", manual.word, function(manual));
    }
    script += "    esac\n}\ncomplete -F _weir weir\n";
    script
}

fn function(manual: &Manual) -> String {
    format!("_weir_{}", manual.word)
}

fn program(script: &mut String, manual: &Manual) {
    let function = function(manual);
    let options: Vec<String> = manual.shown_options().map(super::typed).collect();
    let commands: Vec<&str> = manual.all_commands().map(|command| command.name).collect();
    *script += &format!(
        "\n{function}() {{\n    local first=${{1:-1}} i words=() \
         cur=${{COMP_WORDS[COMP_CWORD]}}\n    COMPREPLY=()\n"
    );
    // The value behind `=` is a word of its own to bash.
    *script += "    local option=${COMP_WORDS[COMP_CWORD-1]}\n    \
                if [[ $cur == = ]]; then cur=; \
                elif [[ $option == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi\n    \
                case $option in\n";
    for option in manual.shown_options().filter(|option| option.takes != Takes::Nothing) {
        if let Some(reply) = reply(option.about.complete) {
            // The value of a letter is the next word only if there must be one.
            let letter = option.short.filter(|_| option.takes == Takes::Value);
            let letter = letter.map_or(String::new(), |letter| format!("-{letter}|"));
            *script += &format!(
                "    {letter}--{}) _weir_reply \"$cur\" {reply}; return ;;\n",
                option.long
            );
        }
    }
    *script += &format!(
        "    esac\n    if [[ $cur == -* ]]; then\n        \
         _weir_reply \"$cur\" words '{}'\n        [[ ${{COMPREPLY[0]}} == *= ]] && \
         compopt -o nospace\n        return\n    fi\n",
        options.join(" ")
    );
    *script += "    for ((i = first; i < COMP_CWORD; i++)); do\n        \
                [[ ${COMP_WORDS[i]} != -* ]] && words+=(\"${COMP_WORDS[i]}\")\n    done\n";
    if !commands.is_empty() {
        *script += &format!(
            "    if ((${{#words[@]}} == 0)); then\n        \
             _weir_reply \"$cur\" words '{}'\n        return\n    fi\n",
            commands.join(" ")
        );
    }
    if commands.is_empty() {
        *script += "    case ${#words[@]} in\n";
        places(script, manual.arguments, 0);
    } else {
        *script += "    case ${words[0]} in\n";
    }
    for command in manual.all_commands().filter(|command| !command.complete.is_empty()) {
        *script += &format!("    {})\n        case ${{#words[@]}} in\n", command.name);
        places(script, command.complete, 1);
        *script += "        esac ;;\n";
    }
    *script += "    esac\n}\n";
    if manual.has_link() {
        *script += &format!("complete -F {function} {}\n", manual.program);
    }
}

/// The cases of the arguments, by the number of words before them.
fn places(script: &mut String, arguments: &[Complete], before: usize) {
    for (place, complete) in arguments.iter().enumerate() {
        let last = place + 1 == arguments.len();
        let number = if last { "*".to_owned() } else { (place + before).to_string() };
        if let Some(reply) = reply(*complete) {
            *script += &format!("        {number}) _weir_reply \"$cur\" {reply} ;;\n");
        }
    }
}

/// The arguments of `_weir_reply`.
fn reply(complete: Complete) -> Option<String> {
    Some(match complete {
        Complete::Nothing => return None,
        Complete::File => "file".to_owned(),
        Complete::Words(words) => format!("words '{}'", words.join(" ")),
        Complete::Server => "server".to_owned(),
        Complete::Database => "database".to_owned(),
        Complete::Table => "table".to_owned(),
    })
}
