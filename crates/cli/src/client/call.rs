//! `weir call` and `weir transact`: one request, its result on standard output.

use std::process::ExitCode;

use weir_json::{Value, array};
use weir_upstream::remotes::looks_like_server;

use super::address::Address;
use super::session::{Refusal, Session, strings};
use crate::dirs::Dirs;
use crate::options::getopt::{Spec, Takes, both};
use crate::program::{Failure, Outcome, say};
use crate::usage::{self, Complete, Manual, about};

/// The options of `weir call` and `weir transact`: their words are otherwise the request's own.
const TABLE: &[Spec<()>] = &[both('h', "help", Takes::Nothing, ()).with(about::HELP)];

/// What people are told about `weir call`.
pub(crate) fn call_manual() -> Manual {
    Manual {
        program: "weir call",
        word: "call",
        summary: "sends one JSON-RPC request and prints its result",
        usage: &["[SERVER] METHOD [PARAMS]"],
        intro: "SERVER is unix:FILE or tcp:HOST:PORT, unix:@SOCK@ if left out. METHOD is list_dbs, \
                get_schema, transact, ... (RFC 7047). PARAMS is a JSON array, or words that are \
                all strings.",
        commands: &[],
        arguments: &[Complete::Server, Complete::Words(METHODS), Complete::Database],
        sections: &[about::OTHER],
        notes: &[(
            "Examples",
            "@PROGRAM@ list_dbs\n@PROGRAM@ tcp:127.0.0.1:6640 get_schema Network",
        )],
        options: usage::options(TABLE),
    }
}

/// Methods that make sense in one call.
const METHODS: &[&str] = &["list_dbs", "get_schema", "get_server_id", "transact", "echo"];

/// What people are told about `weir transact`.
pub(crate) fn transact_manual() -> Manual {
    Manual {
        program: "weir transact",
        word: "transact",
        summary: "executes one transaction and prints its results",
        usage: &["[SERVER] '[\"DATABASE\", OPERATION, ...]'"],
        intro: "SERVER is unix:FILE or tcp:HOST:PORT, unix:@SOCK@ if left out. Each OPERATION has \
                a line of the output.",
        commands: &[],
        arguments: &[Complete::Server, Complete::Nothing],
        sections: &[about::OTHER],
        notes: &[
            (
                "Example",
                "@PROGRAM@ '[\"Network\", {\"op\": \"select\", \"table\": \"Switch\", \"where\": []}]'",
            ),
            ("Exit status", "0 done, 1 an operation failed, and nothing has changed"),
        ],
        options: usage::options(TABLE),
    }
}

/// The server that is asked when none is named.
pub(super) fn default_server(dirs: &Dirs) -> String {
    format!("unix:{}", dirs.run.join("db.sock").display())
}

/// Takes the server off the arguments and connects to it.
pub(super) fn take_server(args: &mut Vec<String>, dirs: &Dirs) -> String {
    match args.first() {
        Some(first) if looks_like_server(first) => args.remove(0),
        _ => default_server(dirs),
    }
}

pub(super) fn help(manual: &Manual, dirs: &Dirs) -> Outcome {
    say(&manual.help(dirs))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn wants_help(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "-h" || arg == "--help")
}

/// Runs `weir call`.
pub(crate) fn call(mut args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    if wants_help(&args) {
        return help(&call_manual(), &dirs);
    }
    let server = take_server(&mut args, &dirs);
    let Some((method, params)) = args.split_first() else {
        return Err(Failure::new("a method is missing; see weir call --help"));
    };
    let params = match params {
        [] => array::<Value>([]),
        [one] if one.trim_start().starts_with('[') => parse(one)?,
        words => strings(&words.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    let result = request(&server, &dirs, method, params)?;
    say(&pretty(&result))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `weir transact`.
pub(crate) fn transact(mut args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    if wants_help(&args) {
        return help(&transact_manual(), &dirs);
    }
    let server = take_server(&mut args, &dirs);
    let [transaction] = &args[..] else {
        return Err(Failure::new("expected one transaction; see weir transact --help"));
    };
    let params = parse(transaction)?;
    let result = request(&server, &dirs, "transact", params)?;
    let results = result.as_array().unwrap_or_default();
    let mut failed = false;
    for result in results {
        failed |= result.get("error").is_some_and(|error| *error != Value::Null);
        say(&format!("{result}\n"))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn parse(text: &str) -> Result<Value, Failure> {
    Value::parse(text.as_bytes()).map_err(|error| Failure::new(format!("not JSON: {error}")))
}

fn request(server: &str, dirs: &Dirs, method: &str, params: Value) -> Result<Value, Failure> {
    let mut session = connect(server, dirs)?;
    session.call(method, params).map_err(|refusal| match refusal {
        Refusal::Error(error) => Failure::new(format!("{method}: {error}")),
        Refusal::Lost(lost) => Failure::new(format!("{server}: {method} failed ({lost})")),
    })
}

pub(super) fn connect(server: &str, dirs: &Dirs) -> Result<Session, Failure> {
    let address = Address::parse(server, dirs).map_err(|error| {
        let reason = error.log.into_iter().map(|(_, text)| text).next().unwrap_or(error.reason);
        Failure::new(format!("{server}: {reason}"))
            .hint("a server is tcp:HOST:PORT, ssl:HOST:PORT or unix:FILE")
    })?;
    Session::connect(&address)
        .map_err(|error| Failure::io(format!("failed to connect to \"{server}\""), &error))
}

fn pretty(value: &Value) -> String {
    let mut text = String::new();
    value.write_pretty(&mut text);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
