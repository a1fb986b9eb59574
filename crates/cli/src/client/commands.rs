//! The commands of ovsdb-client: their names, arguments, help, and what runs them.

use super::remote::{Target, open_database, open_server};
use super::{Client, convert, delivery, dump, info, lock, log, monitor, restore, transact, wait};
use crate::program::{Failure, Outcome};
use crate::usage::{CommandGroup, CommandUsage, Complete};

/// What must be there before a command runs, and what runs it.
enum Work {
    /// Nothing must be there: the command connects by itself.
    Alone(fn(&Client, &[String]) -> Outcome),
    /// A server must be there.
    Server(fn(&Client, Target) -> Outcome),
    /// A server and the database meant must be there.
    Database(fn(&Client, Target) -> Outcome),
}

/// A command: its name, least and most arguments without server and database, its work.
type Command = (&'static str, usize, usize, Work);

/// No upper limit of arguments.
const ANY: usize = usize::MAX;

const COMMANDS: &[Command] = &[
    ("list-dbs", 0, 0, Work::Server(info::list_dbs)),
    ("get-schema", 0, 0, Work::Database(info::get_schema)),
    ("get-schema-version", 0, 0, Work::Database(info::get_schema_version)),
    ("get-schema-cksum", 0, 0, Work::Database(info::get_schema_cksum)),
    ("list-tables", 0, 0, Work::Database(info::list_tables)),
    ("list-columns", 0, 1, Work::Database(info::list_columns)),
    ("transact", 1, 2, Work::Alone(transact::transact)),
    ("query", 1, 2, Work::Alone(transact::query)),
    (transact::EXPLAIN, 1, 2, Work::Alone(transact::explain)),
    ("monitor", 1, ANY, Work::Database(monitor::monitor)),
    ("monitor-cond", 2, 3, Work::Database(monitor::monitor_cond)),
    ("monitor-cond-since", 2, 4, Work::Database(monitor::monitor_cond_since)),
    ("wait", 2, 3, Work::Alone(wait::wait)),
    (delivery::NAME, 0, 1, Work::Database(delivery::wait_delivered)),
    (log::NAME, 0, 0, Work::Database(log::log)),
    ("convert", 1, 2, Work::Alone(convert::convert)),
    ("needs-conversion", 1, 2, Work::Alone(convert::needs_conversion)),
    ("dump", 0, ANY, Work::Database(dump::dump)),
    ("backup", 0, 0, Work::Database(super::backup::backup)),
    ("restore", 0, 0, Work::Database(restore::restore)),
    ("lock", 1, 1, Work::Server(lock::lock)),
    ("steal", 1, 1, Work::Server(lock::steal)),
    ("unlock", 1, 1, Work::Server(lock::unlock)),
    ("help", 0, ANY, Work::Alone(super::help)),
];

/// Runs the command that the words begin with.
pub(super) fn run(client: &Client) -> Outcome {
    let Some((name, args)) = client.options.words.split_first() else {
        return Err(Failure::new("missing command name; use --help for help"));
    };
    let Some((_, least, most, work)) = COMMANDS.iter().find(|command| command.0 == name) else {
        return Err(Failure::new(format!("unknown command '{name}'; use --help for help"))
            .maybe_hint(nearest(name).map(|nearest| format!("did you mean {nearest}?"))));
    };
    let checked = |args: &[String]| {
        if (*least..=*most).contains(&args.len()) {
            return Ok(());
        }
        let usage = usage_of(name).map(|usage| format!("usage: {} {}", name, usage.args));
        Err(Failure::new(format!("invalid syntax for '{name}' (use --help for help)"))
            .maybe_hint(usage))
    };
    match work {
        Work::Alone(work) => {
            checked(args)?;
            work(client, args)
        }
        Work::Server(work) => {
            let target = open_server(client, args, *least)?;
            checked(&target.args)?;
            work(client, target)
        }
        Work::Database(work) => {
            let target = open_database(client, args, *least, None)?;
            checked(&target.args)?;
            work(client, target)
        }
    }
}

fn usage_of(name: &str) -> Option<&'static CommandUsage> {
    GROUPS.iter().flat_map(|group| group.commands).find(|command| command.name == name)
}

/// The command that somebody may have meant.
fn nearest(name: &str) -> Option<&'static str> {
    let mut likely = COMMANDS.iter().filter(|(command, ..)| {
        let shared = command.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        shared >= 3 || command.replace('-', "") == name.replace(['-', '_'], "")
    });
    likely.next().map(|(command, ..)| *command)
}

const DATABASE: &[Complete] = &[Complete::Database];
const TABLE: &[Complete] = &[Complete::Database, Complete::Table, Complete::Nothing];

const fn command(
    name: &'static str,
    args: &'static str,
    help: &'static str,
    complete: &'static [Complete],
) -> CommandUsage {
    CommandUsage { name, args, help, complete }
}

/// What people are told about each command, in groups.
pub(super) const GROUPS: &[CommandGroup] = &[
    CommandGroup {
        title: "Looking at a server",
        commands: &[
            command("list-dbs", "[SERVER]", "names of the databases", &[Complete::Server]),
            command(
                "get-schema",
                "[SERVER] [DATABASE]",
                "the schema as JSON (--pretty breaks lines)",
                DATABASE,
            ),
            command("get-schema-version", "[SERVER] [DATABASE]", "its version number", DATABASE),
            command("get-schema-cksum", "[SERVER] [DATABASE]", "its checksum", DATABASE),
            command("list-tables", "[SERVER] [DATABASE]", "names of the tables", DATABASE),
            command(
                "list-columns",
                "[SERVER] [DATABASE] [TABLE]",
                "columns and their types, of one table or all",
                TABLE,
            ),
        ],
    },
    CommandGroup {
        title: "Reading and changing data",
        commands: &[
            command(
                "dump",
                "[SERVER] [DATABASE] [TABLE [COLUMN...]]",
                "all rows, or those of TABLE, or its COLUMNs",
                TABLE,
            ),
            command(
                "transact",
                "[SERVER] TRANSACTION",
                "execute [\"DATABASE\", OPERATION, ...] of RFC 7047 and print the results",
                &[],
            ),
            command(
                "query",
                "[SERVER] TRANSACTION",
                "the same, and change nothing: an abort is added",
                &[],
            ),
            command(
                transact::EXPLAIN,
                "[SERVER] TRANSACTION",
                "how TRANSACTION would find its rows, and which keys would help (Weir)",
                &[],
            ),
            command(
                "monitor",
                "[SERVER] [DATABASE] TABLE [COLUMN,...]...",
                "print the rows of TABLE, then every change. Among the COLUMNs, !initial, !insert, \
                 !delete and !modify leave out that kind of change. TABLE may be ALL.",
                TABLE,
            ),
            command(
                "monitor-cond",
                "[SERVER] [DATABASE] CONDITION TABLE [COLUMN,...]",
                "the same for the rows that match CONDITION, such as [[\"name\",\"==\",\"br0\"]]",
                DATABASE,
            ),
            command(
                "monitor-cond-since",
                "[SERVER] [DATABASE] [LASTID] CONDITION TABLE [COLUMN,...]",
                "the same for what changed after transaction LASTID",
                DATABASE,
            ),
        ],
    },
    CommandGroup {
        title: "Looking after a database",
        commands: &[
            command(
                "backup",
                "[SERVER] [DATABASE] > SNAPSHOT",
                "write the database as a file that a server can serve",
                DATABASE,
            ),
            command(
                "restore",
                "[SERVER] [DATABASE] < SNAPSHOT",
                "replace everything in the database by what is in the file",
                DATABASE,
            ),
            command(
                "convert",
                "[SERVER] SCHEMA",
                "give the database that the file SCHEMA names this schema",
                &[Complete::File],
            ),
            command(
                "needs-conversion",
                "[SERVER] SCHEMA",
                "whether its schema is another one: yes or no",
                &[Complete::File],
            ),
            command(
                "wait",
                "[SERVER] DATABASE STATE",
                "wait until DATABASE is added, connected or removed",
                &[Complete::Database, Complete::Words(&["added", "connected", "removed"])],
            ),
            command(
                delivery::NAME,
                "[SERVER] [DATABASE] [TXN]",
                "wait until the clients of the server have transaction TXN, or all up to now (Weir)",
                &[Complete::Database, Complete::Words(&["now"])],
            ),
            command(
                log::NAME,
                "[SERVER] [DATABASE]",
                "what has changed, when, and who asked for it, the newest first (Weir)",
                DATABASE,
            ),
        ],
    },
    CommandGroup {
        title: "Locks",
        commands: &[
            command("lock", "[SERVER] LOCK", "wait for LOCK and keep it", &[]),
            command("steal", "[SERVER] LOCK", "take LOCK away from its owner", &[]),
            command("unlock", "[SERVER] LOCK", "ask for LOCK to be released", &[]),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_explained() {
        for (name, ..) in COMMANDS.iter().filter(|command| command.0 != "help") {
            assert!(usage_of(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_slip_of_the_fingers_is_understood() {
        assert_eq!(nearest("listdbs"), Some("list-dbs"));
        assert_eq!(nearest("frobnicate"), None);
        assert_eq!(nearest("transct"), Some("transact"));
    }
}
