//! A command that runs beside others, in what they leave of the processors.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::tools::program;

/// One that has begun, unless it could not.
pub(crate) struct Background(Option<Child>);

impl Background {
    /// Stands for a command that is not run.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Begins. Its output goes nowhere: whoever waits for it runs it again in the open, which is
    /// quick if it passed.
    pub(crate) fn begin(root: &Path, command: &Command) -> Self {
        let mut nice = program(root, "nice");
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        let quiet = nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().ok())
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_its_environment_and_is_waited_for() {
        let file = std::env::temp_dir().join(format!("weir-background-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "printf %s \"$WORD\" > \"$FILE\""]);
        command.env("WORD", "done").env("FILE", &file);
        Background::begin(Path::new("."), &command).wait();
        assert_eq!(std::fs::read_to_string(&file).expect("it has written"), "done");
        std::fs::remove_file(&file).expect("it is there");
    }
}
