//! Programs that stand beside this one: `weir bench` becomes `weir-bench`, so that what serves
//! databases carries no load tests.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::program::{Failure, Outcome};

const BENCH: &str = "weir-bench";

/// Runs `weir bench ARGS`; returns only if there is no such program.
pub(crate) fn bench(args: &[String]) -> Outcome {
    let own = std::env::current_exe()
        .map_err(|error| Failure::io("bench: finding our own program", &error))?;
    let program = own.with_file_name(BENCH);
    let error = Command::new(&program).args(args).exec();
    let failure = Failure::io(format!("bench: running {}", program.display()), &error);
    if error.kind() == ErrorKind::NotFound {
        let hint = "the load tests are a program of their own: cargo build --release -p weir-bench";
        return Err(failure.hint(hint));
    }
    Err(failure)
}
