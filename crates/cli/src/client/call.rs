//! `weir call` and `weir transact`: one request, its result on standard output.

use std::process::ExitCode;

use weir_json::{Value, array};

use super::address::{Address, looks_like_server};
use super::session::{Refusal, Session, strings};
use crate::dirs::Dirs;
use crate::program::{Failure, Outcome, say};

const CALL_HELP: &str = "\
usage: weir call [SERVER] METHOD [PARAMS]

Sends one JSON-RPC request and prints its result.
  SERVER  unix:FILE or tcp:HOST:PORT (default: unix:@SOCK@)
  METHOD  list_dbs, get_schema, transact, ... (RFC 7047)
  PARAMS  a JSON array, or words that are all strings

  weir call tcp:127.0.0.1:6640 get_schema Network
";

const TRANSACT_HELP: &str = "\
usage: weir transact [SERVER] '[\"DATABASE\", OPERATION, ...]'

Executes one transaction and prints its results, a line for each operation.
  SERVER  unix:FILE or tcp:HOST:PORT (default: unix:@SOCK@)

  weir transact '[\"Network\", {\"op\": \"select\", \"table\": \"Switch\", \"where\": []}]'

Ends with status 1 if an operation failed; nothing has changed then.
";

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

pub(super) fn help(text: &str, dirs: &Dirs) -> Outcome {
    say(&text.replace("@SOCK@", &dirs.run.join("db.sock").display().to_string()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn wants_help(args: &[String]) -> bool {
    args.iter().any(|arg| arg == "-h" || arg == "--help")
}

/// `weir call`
pub(crate) fn call(mut args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    if wants_help(&args) {
        return help(CALL_HELP, &dirs);
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

/// `weir transact`
pub(crate) fn transact(mut args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    if wants_help(&args) {
        return help(TRANSACT_HELP, &dirs);
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
