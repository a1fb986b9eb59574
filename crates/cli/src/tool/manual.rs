//! What people are told about ovsdb-tool.

use super::options;
use crate::usage::{CommandGroup, CommandUsage, Complete, Manual};

const FILE: &[Complete] = &[Complete::File];
const NOTHING: &[Complete] = &[Complete::Nothing];
const FILE_ONLY: &[Complete] = &[Complete::File, Complete::Nothing];
const OPERATORS: &[Complete] =
    &[Complete::Nothing, Complete::Words(&["<", "<=", "==", "!=", ">=", ">"]), Complete::Nothing];

const fn usage(
    name: &'static str,
    args: &'static str,
    complete: &'static [Complete],
    help: &'static str,
) -> CommandUsage {
    CommandUsage { name, args, help, complete }
}

const GROUPS: &[CommandGroup] = &[
    CommandGroup {
        title: "Commands",
        commands: &[
            usage("create", "[DB [SCHEMA]]", FILE, "makes a standalone database with this schema"),
            usage("compact", "[DB [DST]]", FILE, "drops what is out of date, in place or to DST"),
            usage(
                "convert",
                "[DB [SCHEMA [DST]]]",
                FILE,
                "changes to another schema, in place or to DST",
            ),
            usage(
                "needs-conversion",
                "[DB [SCHEMA]]",
                FILE,
                "prints whether the schemas differ: yes or no",
            ),
            usage(
                "query",
                "[DB] TRANSACTION",
                FILE_ONLY,
                "runs a transaction, and undoes what it has written",
            ),
            usage("transact", "[DB] TRANSACTION", FILE_ONLY, "runs a transaction"),
            usage(
                "show-log",
                "[DB]",
                FILE,
                "shows the records of a file: when, by whom, which tables; with -m the rows, with \
                 -mm the columns too",
            ),
            usage("db-name", "[DB]", FILE, "prints the name of the database"),
            usage("db-version", "[DB]", FILE, "prints the version of its schema"),
            usage("db-cksum", "[DB]", FILE, "prints the checksum of its schema"),
            usage("schema-name", "[SCHEMA]", FILE, "prints the name in a schema file"),
            usage("schema-version", "[SCHEMA]", FILE, "prints the version in a schema file"),
            usage("schema-cksum", "[SCHEMA]", FILE, "prints the checksum in a schema file"),
            usage(
                "db-is-standalone",
                "DB",
                FILE,
                "exits with 0 for a standalone database, 2 for a clustered one",
            ),
            usage("db-is-clustered", "DB", FILE, "the other way round"),
            usage(
                "compare-versions",
                "A OP B",
                OPERATORS,
                "compares versions such as 5.1.0 by < <= == != >= or >: exits with 0 or 2",
            ),
        ],
    },
    CommandGroup {
        title: "Commands for clustered databases, one file a server",
        commands: &[
            usage(
                "create-cluster",
                "DB CONTENTS LOCAL",
                FILE_ONLY,
                "makes the file of the first server, from a schema or a standalone database; \
                 LOCAL is its address, such as tcp:192.0.2.1:6643",
            ),
            usage(
                "join-cluster",
                "DB NAME LOCAL REMOTE...",
                FILE_ONLY,
                "makes the file of another server; REMOTE are servers of the cluster",
            ),
            usage("db-cid", "DB", FILE, "prints the id of the cluster"),
            usage("db-sid", "DB", FILE, "prints the id of the server"),
            usage("db-local-address", "DB", FILE, "prints the address of the server"),
            usage("check-cluster", "DB...", FILE, "says whether the servers' files agree"),
            usage(
                "cluster-to-standalone",
                "DB CLUSTERDB",
                FILE,
                "makes the standalone database DB of a cluster that is beyond help",
            ),
            usage(
                "recover-cluster",
                "DB CLUSTERDB... [LOCAL]",
                FILE,
                "makes the first server's file DB of a new cluster from the files that are left of \
                 an old one: from the one whose last entry has the highest term, then the highest \
                 index",
            ),
            usage(
                "change-address",
                "DB ADDRESS",
                FILE_ONLY,
                "has the server listen elsewhere from its next start on; it tells the others",
            ),
        ],
    },
    CommandGroup {
        title: "About itself",
        commands: &[
            usage("help", "", NOTHING, "shows this text"),
            usage("list-commands", "", NOTHING, "lists the commands, for scripts"),
        ],
    },
];

/// What people are told about ovsdb-tool.
pub(crate) fn manual() -> Manual {
    Manual {
        program: "ovsdb-tool",
        word: "tool",
        summary: "works on OVSDB database files that no server serves (Weir)",
        usage: &["[OPTIONS] COMMAND [ARG...]"],
        intro: "DB is a database file, @DB@ if left out. SCHEMA is a schema file, @SCHEMA@ if \
                left out.\n\nA file that a server serves is locked. It can be read; ask the \
                server for the rest, with ovsdb-client and ovs-appctl.",
        commands: GROUPS,
        arguments: &[],
        sections: options::SECTIONS,
        notes: &[
            (
                "Examples",
                "@PROGRAM@ create nb.db /usr/share/ovn/ovn-nb.ovsschema\n\
                 @PROGRAM@ -mm show-log nb.db\n\
                 @PROGRAM@ query nb.db '[\"OVN_Northbound\",{\"op\":\"select\",\
                 \"table\":\"NB_Global\",\"where\":[]}]'\n\
                 @PROGRAM@ cluster-to-standalone new.db clustered.db",
            ),
            ("Exit status", "0 done or yes, 1 an error, 2 no"),
            (
                "Environment",
                "OVS_DBDIR       the folder of the default DB, conf.db\n\
                 OVS_PKGDATADIR  the folder of the default SCHEMA, vswitch.ovsschema",
            ),
        ],
        options: options::shown_options(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_explained() {
        let explained = |name: &str| {
            GROUPS.iter().flat_map(|group| group.commands).any(|command| command.name == name)
        };
        let missing: Vec<&str> =
            super::super::commands::names().filter(|name| !explained(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
