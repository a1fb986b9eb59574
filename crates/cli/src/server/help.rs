//! What people are told about ovsdb-server.

use super::{PROGRAM, options};
use crate::usage::{self, Complete, Manual};

/// What people are told about ovsdb-server.
pub(crate) fn manual() -> Manual {
    Manual {
        program: PROGRAM,
        word: "server",
        summary: "serves OVSDB databases (Weir)",
        usage: &["[OPTIONS] [DATABASE...]"],
        intro: "Each DATABASE is a file that ovsdb-tool has created. Without any, @DB@ is \
                served.\n\nFILE of a TLS option may also be db:DB,TABLE,COLUMN: what this \
                column says.",
        commands: &[],
        arguments: &[Complete::File],
        sections: &[
            options::REMOTES,
            usage::about::TLS,
            usage::about::DAEMON,
            usage::about::LOGGING,
            options::DATABASES,
            options::BACKUP,
            usage::about::RECORDING,
            usage::about::OTHER,
        ],
        notes: &[
            (
                "Remotes",
                "punix:FILE          listen on a unix domain socket\n\
                 ptcp:PORT[:IP]      listen on TCP\n\
                 pssl:PORT[:IP]      listen on TLS over TCP\n\
                 unix:FILE           connect to a unix domain socket, again and again\n\
                 tcp:HOST:PORT       connect to TCP\n\
                 ssl:HOST:PORT       connect to TLS over TCP\n\
                 db:DB,TABLE,COLUMN  whatever this column says\n\
                 IPv6 addresses are written in brackets; port 0 lets the system choose one.",
            ),
            (
                "Relays",
                "relay:DB:REMOTE[,REMOTE...]\n\
                 A database that another server has, instead of a file: its rows are kept in\n\
                 memory, and what changes them is decided there. One of several servers is followed\n\
                 at a time; cid:ID among them names the cluster that they must be of.",
            ),
            (
                "Examples",
                "@PROGRAM@ --remote=punix:/tmp/db.sock --remote=ptcp:6640 nb.db\n\
                 @PROGRAM@ --detach --pidfile --log-file --remote=punix:@SOCK@ @DB@",
            ),
        ],
        options: options::shown_options(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dirs::Dirs;

    #[test]
    fn names_what_scripts_look_for() {
        let text = manual().help(&Dirs::from_env());
        for word in ["disable-file-column-diff", "punix:FILE", "--pidfile[=FILE]"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains('@'), "{text}");
    }
}
