//! Load tests against any OVSDB server, over the wire.
//!
//! The driver speaks plain JSON-RPC and knows nothing of the server's insides, so the same
//! program measures Weir and the reference. It starts and stops the servers itself, reads their
//! CPU time from the scheduler's account, and fails when a monitor has not received everything.

mod args;
mod by_name;
mod client;
mod dbfile;
mod drive;
mod error;
mod floor;
mod frame;
mod make_db;
mod peer;
mod ports;
mod procfs;
mod replica;
mod report;
mod rng;
mod set;
mod stats;
mod tally;
mod watch;

use std::process::ExitCode;

pub use error::Error;

const HELP: &str = "\
weir bench: load tests against any OVSDB server

usage: weir bench COMMAND [OPTIONS]

commands:
  ports      ports and load balancers added and removed in OVN_Northbound
  by-name    update, select and delete by a unique name, one client
  set        one element more or less in a large set
  make-db    write an OVN_Southbound-like database file

servers (ports, by-name, set):
  --peer NAME=PATH     a server to start: the program, or a folder with ovsdb-server in it;
                       may be given several times, the last one is compared with the first
  --connect METHOD     a running server instead (unix:PATH or tcp:HOST:PORT), with --pid
  --pid PID            its process, for CPU time and memory
  --file PATH          its database file, for the file's size
  --dir DIR            where databases and sockets are made (default: the temporary folder)
  --no-floor           leave out the bare epoll loop of the same shape
  --repeat N           run everything N times, peers alternating; medians are shown (1)
  --json FILE          write all figures

ports:
  --rows N             ports, and as many load balancers (30000)
  --writers N          clients in a closed loop (50)
  --monitors N         clients that watch everything (100)
  --cycles N           add and remove all rows N times, figures summed (1)
  --rate N             open loop: N transactions a second, latency from the due time
  --drain-us N         monitors are drained every N microseconds, 0: all the time (500)
  --schema FILE        default /usr/share/ovn/ovn-nb.ovsschema

by-name:
  --rows N[,N...]      rows in the table (4000,60000)
  --seconds N          time for each kind of transaction (5)

set:
  --sizes N[,N...]     elements that stay in the set (300,30000)
  --ops N              transactions at each size (20000)
  --writers N, --monitors N, --drain-us N   as above (20, 10, 500)

make-db OUT:
  --megabytes N        size of the file (162)
  --records N          transactions that it is spread over (1)
  --seed N             another seed gives other content of the same shape (1)
  --schema FILE        default /usr/share/ovn/ovn-sb.ovsschema
";

/// Runs `weir bench ARGS`, without the program's name and the word `bench`.
///
/// Everything for people goes to standard output (tables) and standard error (progress).
pub fn run(args: &[String]) -> Result<ExitCode, Error> {
    let Some((command, rest)) = args.split_first() else {
        eprint!("{HELP}");
        return Ok(ExitCode::from(2));
    };
    match command.as_str() {
        "-h" | "--help" | "help" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        _ if rest.iter().any(|a| a == "--help" || a == "-h") => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        "ports" => ports::command(rest),
        "by-name" => by_name::command(rest),
        "set" => set::command(rest),
        "make-db" => make_db::command(rest),
        floor::COMMAND => floor::command(rest),
        other => Err(Error::Usage(format!("unknown command '{other}' (see weir bench --help)"))),
    }
}
