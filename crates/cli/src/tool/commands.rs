//! The commands of ovsdb-tool: their names, arguments, and what runs them.

use super::options::Tool;
use super::{cluster, create, queries, rewrite, show_log, transact};
use crate::program::{Failure, Outcome, say};

/// A command's work, on its arguments.
type Work = fn(&Tool, &[String]) -> Outcome;

/// A command of ovsdb-tool.
pub(super) struct Command {
    /// The command's name.
    name: &'static str,
    /// The command's arguments, for people.
    usage: &'static str,
    least: usize,
    most: usize,
    work: Work,
}

const fn command(
    name: &'static str,
    usage: &'static str,
    least: usize,
    most: usize,
    work: Work,
) -> Command {
    Command { name, usage, least, most, work }
}

const ANY: usize = usize::MAX;

/// All commands in the reference's order.
const COMMANDS: &[Command] = &[
    command("create", "[db [schema]]", 0, 2, create::create),
    command("create-cluster", "db contents local", 3, 3, cluster::create::create_cluster),
    command("join-cluster", "db name local remote...", 4, ANY, cluster::create::join_cluster),
    command("compact", "[db [dst]]", 0, 2, rewrite::compact),
    command("convert", "[db [schema [dst]]]", 0, 3, rewrite::convert),
    command("needs-conversion", "", 0, 2, queries::needs_conversion),
    command("db-name", "[db]", 0, 1, queries::db_name),
    command("db-version", "[db]", 0, 1, queries::db_version),
    command("db-cksum", "[db]", 0, 1, queries::db_cksum),
    command("db-cid", "db", 1, 1, cluster::db_cid),
    command("db-sid", "db", 1, 1, cluster::db_sid),
    command("db-local-address", "db", 1, 1, cluster::db_local_address),
    command("db-is-clustered", "db", 1, 1, queries::db_is_clustered),
    command("db-is-standalone", "db", 1, 1, queries::db_is_standalone),
    command("schema-name", "[schema]", 0, 1, queries::schema_name),
    command("schema-version", "[schema]", 0, 1, queries::schema_version),
    command("schema-cksum", "[schema]", 0, 1, queries::schema_cksum),
    command("query", "[db] trns", 1, 2, transact::query),
    command("transact", "[db] trns", 1, 2, transact::transact),
    command("show-log", "[db]", 0, 1, show_log::show_log),
    command("check-cluster", "db...", 1, ANY, cluster::check::check_cluster),
    command("compare-versions", "a op b", 3, 3, queries::compare_versions),
    command("help", "", 0, ANY, help),
    command("list-commands", "", 0, ANY, list_commands),
    command(
        "cluster-to-standalone",
        "db clusterdb",
        2,
        2,
        cluster::standalone::cluster_to_standalone,
    ),
];

/// Commands that the reference does not have: its lists are the same.
const OWN: &[Command] = &[
    command(
        "recover-cluster",
        "db clusterdb... [local]",
        2,
        ANY,
        cluster::recover::recover_cluster,
    ),
    command("change-address", "db address", 2, 2, cluster::address::change_address),
];

/// The names of all commands.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().chain(OWN).map(|command| command.name)
}

/// Runs the command that `words` begins with.
pub(super) fn run(tool: &Tool, words: &[String]) -> Outcome {
    let Some((name, args)) = words.split_first() else {
        return Err(Failure::new("missing command name; use --help for help"));
    };
    let Some(command) = COMMANDS.iter().chain(OWN).find(|command| command.name == name) else {
        return Err(Failure::new(format!("unknown command '{name}'; use --help for help")));
    };
    let (least, most) = (command.least, command.most);
    if args.len() < least {
        let text = format!("'{name}' command requires at least {least} arguments");
        return Err(Failure::new(text));
    }
    if args.len() > most {
        return Err(Failure::new(format!("'{name}' command takes at most {most} arguments")));
    }
    (command.work)(tool, args)
}

fn help(tool: &Tool, _args: &[String]) -> Outcome {
    super::options::print_help(&tool.dirs)
}

fn list_commands(_tool: &Tool, _args: &[String]) -> Outcome {
    let mut text = "The available commands are:\n".to_owned();
    for command in COMMANDS {
        text += &format!("  {:<23} {}\n", command.name, command.usage);
    }
    say(&text)?;
    Ok(std::process::ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::Dirs;
    use weir_host::vlog::Vlog;

    fn failure(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let tool = Tool {
            log: Vlog::new("ovsdb-tool"),
            dirs: Dirs::from_env(),
            more: 0,
            role: None,
            cluster_id: None,
            election_timer: None,
            accepts_damage: false,
        };
        run(&tool, &words).err().map(|failure| failure.text).unwrap_or_default()
    }

    #[test]
    fn mistakes_in_the_words_of_the_reference() {
        for (words, expected) in [
            (&[][..], "missing command name; use --help for help"),
            (&["foo"], "unknown command 'foo'; use --help for help"),
            (&["create", "a", "b", "c"], "'create' command takes at most 2 arguments"),
            (&["create-cluster", "a"], "'create-cluster' command requires at least 3 arguments"),
            (&["check-cluster"], "'check-cluster' command requires at least 1 arguments"),
        ] {
            assert_eq!(failure(words), expected);
        }
    }
}
