//! The load tests' program where tests of this package find one: cargo builds no other package's.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_bench::main()
}
