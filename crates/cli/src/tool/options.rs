//! The command line of ovsdb-tool.

use std::process::ExitCode;

use weir_data::Uuid;
use weir_host::vlog::Vlog;

use super::commands;
use crate::dirs::Dirs;
use crate::getopt::Takes::{MaybeValue, Nothing, Value};
use crate::getopt::{Options, Spec, both, long};
use crate::log_options::{LogOption, open_log};
use crate::program::{Failure, Outcome, say, version_lines};
use crate::usage::option_list;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Id {
    More,
    RbacRole,
    Cid,
    ElectionTimer,
    Verbose,
    LogFile,
    SyslogMethod,
    SyslogTarget,
    Help,
    Option,
    Version,
}

/// In the reference's order, which `--option` prints.
const TABLE: &[Spec<Id>] = &[
    both('m', "more", Nothing, Id::More),
    long("rbac-role", Value, Id::RbacRole),
    long("cid", Value, Id::Cid),
    long("election-timer", Value, Id::ElectionTimer),
    both('v', "verbose", MaybeValue, Id::Verbose),
    both('h', "help", Nothing, Id::Help),
    both('o', "option", Nothing, Id::Option),
    both('V', "version", Nothing, Id::Version),
    long("log-file", MaybeValue, Id::LogFile),
    long("syslog-method", Value, Id::SyslogMethod),
    long("syslog-target", Value, Id::SyslogTarget),
];

const HELP: &str = "\
ovsdb-tool: works on OVSDB database files (Weir)
usage: ovsdb-tool [OPTIONS] COMMAND [ARG...]

  create [DB [SCHEMA]]          make a standalone database with this schema
  compact [DB [DST]]            drop what is out of date, in place or to DST
  convert [DB [SCHEMA [DST]]]   change to another schema, in place or to DST
  needs-conversion [DB [SCHEMA]]  whether the schemas differ: yes or no
  db-name, db-version, db-cksum [DB]  what the database's schema says
  schema-name, schema-version, schema-cksum [SCHEMA]  what a schema file says
  db-is-standalone, db-is-clustered DB  exit status 0 for yes, 2 for no
  query [DB] TXN                execute a transaction that writes nothing
  transact [DB] TXN             execute a transaction
  [-m]... show-log [DB]         show the records: -m rows, -mm columns too
  compare-versions A OP B       compare x.y.z by < <= == != >= >: status 0 or 2

Clustered databases, one file a server:
  [--election-timer=MS] create-cluster DB CONTENTS LOCAL
                                the first server's, from a schema or a standalone database
  [--cid=UUID] join-cluster DB NAME LOCAL REMOTE...
                                another server's
  db-cid, db-sid, db-local-address DB  ids of cluster and server, the server's address
  check-cluster DB...           whether the servers' files agree
  cluster-to-standalone DB CLUSTERDB
                                make a standalone database of a cluster that is beyond help

DB is @DB@ if left out,
SCHEMA is @SCHEMA@.

Options:
  -m, --more              show more in show-log
  --rbac-role=ROLE        role for query and transact
  -v, --verbose[=SPEC]    set levels of logging: MODULE:DESTINATION:LEVEL, in any order
  --log-file[=FILE]       log to a file
  --syslog-method=METHOD  libc, null, unix:FILE or udp:IP:PORT
  --syslog-target=HOST:PORT  accepted
  -o, --option            list all options
  -h, --help              show this text
  -V, --version           show versions
";

/// What every command works with.
pub(super) struct Tool {
    /// Where warnings go.
    pub(super) log: Vlog,
    /// Where databases and schemas are.
    pub(super) dirs: Dirs,
    /// How often `-m` was given.
    pub(super) more: u8,
    /// `--rbac-role`
    pub(super) role: Option<String>,
    /// `--cid`
    pub(super) cluster_id: Option<Uuid>,
    /// `--election-timer`
    pub(super) election_timer: Option<String>,
}

/// `ovsdb-tool`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let mut logging = vec![];
    let (mut more, mut role) = (0_u8, None);
    let (mut cluster_id, mut election_timer) = (None, None);
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        match option {
            Ok((Id::Help, _)) => return print_help(&dirs),
            Ok((Id::Version, _)) => return print(&version_lines("ovsdb-tool")),
            Ok((Id::Option, _)) => return print(&option_list(TABLE)),
            Ok((Id::Verbose, value)) => logging.push(LogOption::Verbose(value)),
            Ok((Id::LogFile, value)) => logging.push(LogOption::File(value)),
            Ok((Id::SyslogMethod, Some(value))) => logging.push(LogOption::SyslogMethod(value)),
            Ok((Id::SyslogTarget, Some(value))) => logging.push(LogOption::SyslogTarget(value)),
            Ok((Id::More, _)) => more = more.saturating_add(1),
            Ok((Id::RbacRole, value)) => role = value,
            Ok((Id::Cid, value)) => cluster_id = Some(parse_cid(&value.unwrap_or_default())?),
            Ok((Id::ElectionTimer, value)) => election_timer = value,
            Ok((Id::SyslogMethod | Id::SyslogTarget, None)) => {}
            Err(error) => return Err(Failure::usage(typed, &error)),
        }
    }
    let tool = Tool {
        log: open_log("ovsdb-tool", &logging, &dirs)?,
        dirs,
        more,
        role,
        cluster_id,
        election_timer,
    };
    commands::run(&tool, &options.into_positional())
}

pub(super) fn print_help(dirs: &Dirs) -> Outcome {
    let db = dirs.default_database().display().to_string();
    let schema = dirs.default_schema().display().to_string();
    print(&HELP.replace("@DB@", &db).replace("@SCHEMA@", &schema))
}

fn print(text: &str) -> Outcome {
    say(text)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_cid(text: &str) -> Result<Uuid, Failure> {
    let uuid =
        Uuid::parse(text).ok_or_else(|| Failure::new(format!("{text}: not a valid UUID")))?;
    if uuid == Uuid::ZERO {
        return Err(Failure::new("all-zero UUID is not valid cluster ID"));
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_sees_every_option() {
        let list = option_list(TABLE);
        assert!(list.starts_with("--more\n-m \n--rbac-role=ARG\n"), "{list}");
        assert!(list.contains("--verbose=[ARG]\n-v [ARG]\n"), "{list}");
    }

    #[test]
    fn scripts_find_the_election_timer_in_the_help() {
        assert!(HELP.contains("--election-timer"));
    }
}
