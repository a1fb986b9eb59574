//! `weir`: all the programs in one binary. A library, so that fuzz targets can link it.
//!
//! Called through a link named `ovsdb-server`, `ovsdb-client` or `ovsdb-tool` it is that program;
//! else the first word says what it is.

// The programs.
mod appctl;
mod beside;
mod client;
mod server;
mod status;
mod tool;
mod up;

// What they share.
mod dirs;
mod memory;
mod options;
mod program;
mod progress;
mod usage;

#[cfg(fuzzing)]
pub mod fuzzing;

use std::process::ExitCode;

use program::{Failure, Outcome, WEIR_VERSION, base_name, say};

const HELP: &str = "\
weir: an OVSDB server

  weir up                     start a small example database and show what to try
  weir server [OPTION...]     the server (as ovsdb-server; weir server --help)
  weir client COMMAND         ask a server (as ovsdb-client; weir client --help)
  weir tool COMMAND           work on database files (as ovsdb-tool; weir tool --help)
  weir appctl COMMAND         give commands to a daemon (as ovs-appctl; weir appctl --help)
  weir status [-t TARGET]     show how a server is, and what is slow
  weir watch [SERVER]         show every change of a database live
  weir transact [SERVER] TXN  execute one transaction
  weir call [SERVER] METHOD   send any request
  weir bench COMMAND          load tests against any OVSDB server (weir-bench beside weir)
  weir completions SHELL      completions for bash, zsh or fish
  weir man WORD               a man page, for man -l - (weir man status | man -l -)
  weir version

Called through a link named ovsdb-server, ovsdb-client or ovsdb-tool, it is that program.
";

/// How this process was called.
struct Called {
    /// The program's name: what stands before its messages, and in names of pid files and sockets.
    program: &'static str,
    /// What getopt's messages begin with: the command as it was typed.
    typed: String,
}

/// What the process does, from its arguments to its status.
pub fn main() -> ExitCode {
    let mut args = match utf8_args() {
        Ok(args) => args,
        Err(failure) => return failure.report("weir"),
    };
    let typed = if args.is_empty() { "weir".to_owned() } else { args.remove(0) };
    let name = base_name(&typed).to_owned();
    let (called, outcome) = match name.as_str() {
        "ovsdb-server" => run("ovsdb-server", typed, args, server),
        "ovsdb-tool" => run("ovsdb-tool", typed, args, tool),
        "ovsdb-client" => run("ovsdb-client", typed, args, client),
        "ovs-appctl" => run("ovs-appctl", typed, args, appctl),
        _ => by_word(&typed, args),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(called.program),
    }
}

type Program = fn(&Called, Vec<String>) -> Outcome;

fn run(
    name: &'static str,
    typed: String,
    args: Vec<String>,
    program: Program,
) -> (Called, Outcome) {
    let called = Called { program: name, typed };
    let outcome = program(&called, args);
    (called, outcome)
}

/// Runs the program that the word behind `weir` names.
fn by_word(typed: &str, mut args: Vec<String>) -> (Called, Outcome) {
    let word = if args.is_empty() { "help".to_owned() } else { args.remove(0) };
    let typed = format!("{typed} {word}");
    match word.as_str() {
        "server" => run("ovsdb-server", typed, args, server),
        "tool" => run("ovsdb-tool", typed, args, tool),
        "client" => run("ovsdb-client", typed, args, client),
        "appctl" => run("ovs-appctl", typed, args, appctl),
        "up" => run("weir", typed, args, |called, args| up::up(&called.typed, args)),
        "status" => run("weir", typed, args, |called, args| status::status(&called.typed, args)),
        "watch" => run("weir", typed, args, |_, args| client::watch(args)),
        "call" => run("weir", typed, args, |_, args| client::call(args)),
        "transact" => run("weir", typed, args, |_, args| client::transact(args)),
        "man" => run("weir", typed, args, |called, args| usage::man_page(&called.typed, args)),
        "completions" => run("weir", typed, args, |c, args| usage::completions(&c.typed, args)),
        "bench" => run("weir", typed, args, |_, args| beside::bench(&args)),
        "help" | "-h" | "--help" => run("weir", typed, args, |_, _| print(HELP)),
        "version" | "-V" | "--version" => {
            run("weir", typed, args, |_, _| print(&format!("weir {WEIR_VERSION}\n")))
        }
        _ => {
            let failure = Failure::new(format!("unknown command '{word}'; see weir help"));
            (Called { program: "weir", typed }, Err(failure))
        }
    }
}

/// The arguments of this process as text: our files, names and messages are all text.
fn utf8_args() -> Result<Vec<String>, Failure> {
    let text = |arg: std::ffi::OsString| {
        arg.into_string().map_err(|arg| Failure::new(format!("not UTF-8: {}", arg.display())))
    };
    std::env::args_os().map(text).collect()
}

fn print(text: &str) -> Outcome {
    say(text)?;
    Ok(ExitCode::SUCCESS)
}

fn tool(called: &Called, args: Vec<String>) -> Outcome {
    tool::main(&called.typed, args)
}

fn client(called: &Called, args: Vec<String>) -> Outcome {
    client::main(&called.typed, args)
}

fn appctl(called: &Called, args: Vec<String>) -> Outcome {
    appctl::main(&called.typed, args)
}

fn server(called: &Called, args: Vec<String>) -> Outcome {
    server::main(&called.typed, args)
}
