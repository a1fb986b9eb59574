//! Load tests against any OVSDB server, over the wire.
//!
//! The driver speaks plain JSON-RPC and knows nothing of the server's insides, so the same
//! program measures Weir and the reference. It starts and stops the servers itself, reads their
//! CPU time from the scheduler's account, and fails when a monitor has not received everything.
//!
//! `weir-bench` is a program of its own, which `weir bench` becomes: what people install to serve
//! databases has no load driver in it.

// The frame: what runs, where, and what is told of it.
mod args;
mod error;
mod interrupt;
mod one_core;
mod peer;
mod pki;
mod progress;
mod report;
mod rounds;
mod running;
mod sampler;

// The load: clients, what they count, and the bare loop that they are held against.
mod client;
mod crowd;
mod drive;
mod floor;
mod frame;
mod procfs;
mod pulse;
mod replica;
mod rng;
mod stats;
mod tally;
mod tls;
mod watch;
mod writer;

// Database files.
mod dbfile;
mod make_db;

// The scenarios.
mod all;
mod big;
mod by_key;
mod cluster;
mod conditions;
mod connections;
mod growth;
mod herd;
mod large;
mod openstack;
mod ports;
mod queries;
mod relay;
mod resume;
mod scenarios;
mod set;
mod steps;
mod strings;
mod tools;
mod unfair;

use std::path::PathBuf;
use std::process::ExitCode;

use args::Args;
pub use error::Error;
use report::Report;
use rounds::Bench;

/// What the process does, from its arguments to its status.
pub fn main() -> ExitCode {
    let text = |arg: std::ffi::OsString| {
        arg.into_string().map_err(|arg| Error::Usage(format!("not UTF-8: {}", arg.display())))
    };
    let args = std::env::args_os().skip(1).map(text).collect::<Result<Vec<_>, _>>();
    args.and_then(|args| run(&args)).unwrap_or_else(|error| {
        eprintln!("weir-bench: {error}");
        ExitCode::FAILURE
    })
}

/// Runs `weir bench ARGS`, without the program's name and the word `bench`.
///
/// Everything for people goes to standard output (tables) and standard error (progress).
pub fn run(args: &[String]) -> Result<ExitCode, Error> {
    let Some((command, rest)) = args.split_first() else {
        eprint!("{}", scenarios::help());
        return Ok(ExitCode::from(2));
    };
    if matches!(command.as_str(), "-h" | "--help" | "help")
        || rest.iter().any(|word| word == "--help" || word == "-h")
    {
        print!("{}", scenarios::help());
        return Ok(ExitCode::SUCCESS);
    }
    match command.as_str() {
        "schema" => return scenarios::print_schema(rest),
        "make-db" => return make_db::command(rest),
        floor::COMMAND => return floor::command(rest),
        tools::COMMAND => return tools::command(rest),
        _ => {}
    }
    interrupt::handle_signals()?;
    let mut args = Args::new(rest);
    let (json, page) = (args.text("--json")?, args.text("--report")?);
    let mut whole = true;
    let reports = match command.as_str() {
        "report" => read_all(args)?,
        "all" => {
            let bench = Bench::from_args(&mut args)?;
            let (reports, good) = all::run(&mut args, &bench)?;
            whole = good;
            reports
        }
        scenario_name => {
            scenarios::known(scenario_name)?;
            let bench = Bench::from_args(&mut args)?;
            vec![scenarios::run(scenario_name, &mut args, &bench)?]
        }
    };
    let path = |name: Option<String>| name.map(PathBuf::from);
    report::publish(&reports, path(json).as_deref(), path(page).as_deref())?;
    Ok(ExitCode::from(u8::from(!whole)))
}

fn read_all(args: Args) -> Result<Vec<Report>, Error> {
    let mut reports = Vec::new();
    for file in args.words()? {
        reports.append(&mut report::read(file.as_ref())?);
    }
    Ok(reports)
}
