//! Admin commands from anybody who can open the socket: first as the shell reads them, then as the
//! core answers them. A line is a message, or words for the core behind a `>`.
#![no_main]

#[path = "../../crates/server/tests/shell/mod.rs"]
mod shell;

use libfuzzer_sys::fuzz_target;
use shell::Shell;
use weir_host::fuzzing::Admin;

/// What would end the server.
const LAST: &str = "exit";

fuzz_target!(|input: &[u8]| {
    let mut admin = Admin::default();
    let mut shell = Shell::start();
    for line in input.split(|byte| *byte == b'\n') {
        if let Some(words) = line.strip_prefix(b">") {
            let words = String::from_utf8_lossy(words);
            let mut words = words.split(' ');
            let name = words.next().unwrap_or_default();
            let args: Vec<&str> = words.collect();
            if name != LAST {
                let _ = shell.command(name, &args);
            }
        } else {
            admin.handle(line);
        }
    }
    shell.settle();
});
