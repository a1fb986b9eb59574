//! The command line of ovsdb-tool.

use std::process::ExitCode;

use weir_data::Uuid;
use weir_host::vlog::Vlog;

use super::commands;
use crate::dirs::Dirs;
use crate::options::getopt::Takes::{MaybeValue, Nothing, Value};
use crate::options::getopt::{Options, Spec, both, long};
use crate::options::logging::{LogId, open_log};
use crate::program::{Failure, Outcome, say, version_lines};
use crate::usage::{self, About, about as shown, option_list};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    More,
    RbacRole,
    Cid,
    ElectionTimer,
    AcceptDamage,
    Log(LogId),
    Help,
    Option,
    Version,
}

/// The heading of options of commands.
const COMMANDS: &str = "Options of commands";

const MORE: About = shown(COMMANDS, "", "show-log: show rows; twice: their columns too");
const RBAC_ROLE: About = shown(COMMANDS, "ROLE", "query, transact: with the rights of this role");
const CID: About = shown(COMMANDS, "UUID", "join-cluster: only the cluster with this id");
const ELECTION_TIMER: About =
    shown(COMMANDS, "MS", "create-cluster: time without a leader before an election");

const ACCEPT_DAMAGE: About =
    shown(COMMANDS, "", "recover-cluster: leave out what is behind a bad record");

/// The options of ovsdb-tool in the reference's order, which `--option` prints.
pub(crate) const TABLE: &[Spec<Id>] = &[
    both('m', "more", Nothing, Id::More).with(MORE),
    long("rbac-role", Value, Id::RbacRole).with(RBAC_ROLE),
    long("cid", Value, Id::Cid).with(CID),
    long("election-timer", Value, Id::ElectionTimer).with(ELECTION_TIMER),
    both('v', "verbose", MaybeValue, Id::Log(LogId::Verbose)).with(usage::about::VERBOSE),
    both('h', "help", Nothing, Id::Help).with(usage::about::HELP),
    both('o', "option", Nothing, Id::Option).with(usage::about::OPTION),
    both('V', "version", Nothing, Id::Version).with(usage::about::VERSION),
    long("accept-damage", Nothing, Id::AcceptDamage).with(ACCEPT_DAMAGE),
    long("log-file", MaybeValue, Id::Log(LogId::File)).with(usage::about::LOG_FILE),
    long("syslog-method", Value, Id::Log(LogId::SyslogMethod)).with(usage::about::SYSLOG_METHOD),
    long("syslog-target", Value, Id::Log(LogId::SyslogTarget)).with(usage::about::SYSLOG_TARGET),
];

/// The options at the end of [`TABLE`] that the reference does not know, but for some in its manual:
/// they are not listed.
const UNLISTED: usize = 4;

/// The options that `--option` prints.
fn listed() -> &'static [Spec<Id>] {
    TABLE.get(..TABLE.len() - UNLISTED).unwrap_or(TABLE)
}

/// What people are told about the options.
pub(super) fn shown_options() -> Vec<usage::OptionUsage> {
    usage::options(TABLE)
}

/// The headings of the options, in order.
pub(super) const SECTIONS: &[&str] = &[COMMANDS, usage::about::LOGGING, usage::about::OTHER];

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
    /// `--accept-damage`
    pub(super) accepts_damage: bool,
}

/// Runs `ovsdb-tool`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let mut logging = vec![];
    let (mut more, mut role) = (0_u8, None);
    let (mut cluster_id, mut election_timer) = (None, None);
    let mut accepts_damage = false;
    let mut options = Options::new(TABLE, args);
    for option in options.by_ref() {
        match option {
            Ok((Id::Help, _)) => return print_help(&dirs),
            Ok((Id::Version, _)) => return print(&version_lines("ovsdb-tool")),
            Ok((Id::Option, _)) => return print(&option_list(listed())),
            Ok((Id::Log(id), value)) => logging.push(id.with(value)),
            Ok((Id::More, _)) => more = more.saturating_add(1),
            Ok((Id::RbacRole, value)) => role = value,
            Ok((Id::Cid, value)) => cluster_id = Some(parse_cid(&value.unwrap_or_default())?),
            Ok((Id::ElectionTimer, value)) => election_timer = value,
            Ok((Id::AcceptDamage, _)) => accepts_damage = true,
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
        accepts_damage,
    };
    commands::run(&tool, &options.into_positional())
}

pub(super) fn print_help(dirs: &Dirs) -> Outcome {
    print(&super::manual().help(dirs))
}

fn print(text: &str) -> Outcome {
    say(text)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_cid(text: &str) -> Result<Uuid, Failure> {
    let uuid = Uuid::parse(text).filter(|uuid| *uuid != Uuid::ZERO);
    uuid.ok_or_else(|| Failure::new(format!("{text}: not a valid UUID")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_sees_every_option() {
        let list = option_list(listed());
        assert!(list.starts_with("--more\n-m \n--rbac-role=ARG\n"), "{list}");
        assert!(list.ends_with("-o \n--version\n-V \n"), "{list}");
        assert!(list.contains("--verbose=[ARG]\n-v [ARG]\n"), "{list}");
    }

    #[test]
    fn scripts_find_the_election_timer_in_the_help() {
        let help = crate::tool::manual().help(&Dirs::from_env());
        assert!(help.contains("  --election-timer=MS"), "{help}");
    }
}
