//! What people are told about `weir status`, and its options.

use crate::options::getopt::Takes::{Nothing, Value};
use crate::options::getopt::{Spec, both, long};
use crate::usage::about::OPTIONS;
use crate::usage::{self, About, Complete, Manual, about};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Id {
    Target,
    Json,
    Watch,
    Help,
}

const TARGET: About =
    about(OPTIONS, "TARGET", "whom to ask (default: ovsdb-server)").complete(Complete::File);
const JSON: About = about(OPTIONS, "", "for programs, each look on one line");
const WATCH: About = about(OPTIONS, "", "again every second, until Ctrl-C");

pub(super) const TABLE: &[Spec<Id>] = &[
    both('t', "target", Value, Id::Target).with(TARGET),
    long("json", Nothing, Id::Json).with(JSON),
    long("watch", Nothing, Id::Watch).with(WATCH),
    both('h', "help", Nothing, Id::Help).with(about::HELP),
];

/// What people are told about `weir status`.
pub(crate) fn manual() -> Manual {
    Manual {
        program: "weir status",
        word: "status",
        summary: "shows how an ovsdb-server of Weir is, and what is slow",
        usage: &["[-t TARGET] [--json] [--watch]"],
        intro: "Shows databases, sessions, memory, what is queued for clients, the longest time \
                that the server was away from them, and what is slow, in one screen.\n\nTARGET is \
                a daemon's name, whose pid file is looked for in @RUN@, or the path of its admin \
                socket.\n\nWith --watch a terminal is cleared before each look; elsewhere an empty \
                line stands between two. When the server goes away, that is said in place of the \
                status (with --json: on standard error), and it is looked for every second.",
        commands: &[],
        arguments: &[],
        sections: &[OPTIONS, about::OTHER],
        notes: &[
            ("What is shown", COLUMNS),
            ("Members of the JSON object", MEMBERS),
            (
                "Examples",
                "@PROGRAM@ --watch\n\
                 @PROGRAM@ -t /var/run/ovn/ovnnb_db.ctl\n\
                 @PROGRAM@ --json | jq '.databases[] | {name, rows, waiting}'",
            ),
            (
                "Exit status",
                "0 whatever is shown, 1 the server cannot be asked. With --watch the first look\n\
                 decides; Ctrl-C ends it as the signal does: 130 in a shell.",
            ),
        ],
        options: usage::options(TABLE),
    }
}

const COLUMNS: &str = "\
RECORDS  in the file, since its last compaction
PENDING  bytes of changes that clients have not been told yet
WAITING  transactions that wait, such as for the operation \"wait\"
QUEUED   bytes sent to a client that it has not read
SILENT   time since the client said something
SLOW     what takes longer than it should";

/// The members of the object that the server's admin command `weir/status` answers.
const MEMBERS: &str = "\
databases       name, rows (null while a long transaction has them), atoms,
                monitors, pending_bytes, waiting, oldest_waiting_ms, queued
                (requests that wait for the tables), conversion, is_backup,
                file: null, or path, size, snapshot_size, records,
                compacting_ms, fault; relay: null, or source, connected,
                path (ids of the servers that the rows come through, this
                one last), behind_ms (since the source was lost), forwarded
                (requests that it has not answered); keys: table, column, kind, state,
                wanted_by, entries, bytes, rows_saved
sessions        the 1000 with most queued: name, remote, role, monitors, locks,
                queued_bytes, kept_bytes (for monitors, locks, transactions
                that wait), silent_ms, held, read_only
sessions_total  how many there are
work            what runs beside the loop: what, database, session, age_ms
process         resident_bytes, queued_bytes, kept_bytes, kept_bytes_max,
                rounds (of the loop), stall_us (the longest of the last
                minute), stall_ever_us
Sizes are in bytes; what is not going on, or not known, is null.";
