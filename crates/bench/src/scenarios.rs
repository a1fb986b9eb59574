//! The scenarios by name.

use std::process::ExitCode;

use crate::args::Args;
use crate::by_key::{self, Key};
use crate::one_core::OneCore;
use crate::report::Report;
use crate::rounds::Bench;
use crate::{
    Error, big, conditions, connections, dbfile, growth, herd, large, openstack, ports, set, steps,
    strings, tools,
};

/// Prints the schema of the database that a running server must have for a scenario.
pub(crate) fn print_schema(words: &[String]) -> Result<ExitCode, Error> {
    let name = words.first().map_or("", String::as_str);
    let schema = match name {
        "set" => set::schema(),
        "by-name" | "by-column" | "may-exist" => by_key::schema(false),
        "conditions" => conditions::schema(),
        "connections" => connections::schema(),
        "strings" => strings::schema(),
        "ports" | "big" | "openstack" => {
            dbfile::read_schema(ports::SCHEMA.as_ref(), "of Debian's package ovn-common")?
        }
        _ => return Err(Error::Usage(format!("schema: no scenario '{name}' with one"))),
    };
    println!("{schema:#}");
    Ok(ExitCode::SUCCESS)
}

/// The option that has driver and servers share one core.
pub(crate) const ONE_CORE: &str = "--one-core";

const SCENARIOS: [&str; 16] = [
    "ports",
    "set",
    "big",
    "by-name",
    "by-column",
    "may-exist",
    "conditions",
    "growth",
    "openstack",
    "connections",
    "strings",
    "herd",
    "large",
    "snapshot-memory",
    "tools",
    "steps",
];

/// Whether there is such a scenario; asked before servers are looked for.
pub(crate) fn known(name: &str) -> Result<(), Error> {
    if SCENARIOS.contains(&name) {
        return Ok(());
    }
    Err(Error::Usage(format!("unknown command '{name}' (see weir bench --help)")))
}

/// Runs one scenario, on one core where the options say so.
pub(crate) fn run(name: &str, args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let pinned = args.flag(ONE_CORE).then(OneCore::begin).transpose()?;
    let mut report = run_there(name, args, bench)?;
    if pinned.is_some() {
        report.add_to_title("on one core");
    }
    Ok(report)
}

fn run_there(name: &str, args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    match name {
        "ports" => ports::run(args, bench),
        "set" => set::run(args, bench),
        "big" => big::run(args, bench),
        "by-name" => by_key::run(Key::Name, args, bench),
        "by-column" => by_key::run(Key::Column, args, bench),
        "may-exist" => by_key::run(Key::MayExist, args, bench),
        "conditions" => conditions::run(args, bench),
        "growth" => growth::run(args, bench),
        "openstack" => openstack::run(args, bench),
        "connections" => connections::run(args, bench),
        "strings" => strings::run(args, bench),
        "herd" => herd::run(args, bench),
        "large" => large::run(args, bench),
        "snapshot-memory" => large::snapshots(args, bench),
        "tools" => tools::run(args, bench),
        "steps" => steps::run(args, bench),
        _ => known(name).and_then(|()| Err(Error::Usage(format!("{name} has no body")))),
    }
}
