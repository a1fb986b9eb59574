//! The arguments of all programs, one a line behind a byte that says whose they are: options are
//! read or refused, and no argument is lost.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&program, rest)) = input.split_first() else { return };
    let lines = rest.split(|byte| *byte == b'\n');
    let args = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    weir_cli::fuzzing::read_command_line(program, args);
});
