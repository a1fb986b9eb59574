//! A command that runs beside others, in what they leave of the processors.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::step::{Outcome, show};
use crate::tools::{program, target};

/// One that has begun, unless it could not.
pub(crate) struct Background(Option<Running>);

struct Running {
    shown: String,
    child: Child,
    /// What it writes.
    output: PathBuf,
}

impl Background {
    /// Stands for a command that is not run.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Begins, behind all that is not in the background. Of two that run at once the `name` differs.
    pub(crate) fn begin(root: &Path, name: &str, command: &Command) -> Self {
        let mut nice = program(root, "nice");
        nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        Self(Self::start(root, name, show(command), &mut nice).ok())
    }

    /// Begins as one among equals, since what it does depends on the time that it has.
    pub(crate) fn begin_beside(root: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let shown = show(command);
        let running = Self::start(root, name, shown.clone(), command).context(shown)?;
        Ok(Self(Some(running)))
    }

    fn start(root: &Path, name: &str, shown: String, command: &mut Command) -> Result<Running> {
        let folder = target(root).join("background");
        std::fs::create_dir_all(&folder)?;
        let output = folder.join(format!("{name}.log"));
        let file = File::create(&output)?;
        let command = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Running { shown, child: command.spawn()?, output })
    }

    /// Waits for its end. Whoever does so runs it again in the open, which is quick if it passed.
    pub(crate) fn wait(mut self) {
        if let Some(running) = &mut self.0 {
            let _ = running.child.wait();
        }
    }

    /// Waits for its end, and shows what it wrote.
    pub(crate) fn finish(self) -> Result<Outcome> {
        let Some(mut running) = self.0 else { return Ok(Outcome::Skipped("not begun".into())) };
        println!("    $ {}", running.shown);
        let status = running.child.wait()?;
        print!("{}", String::from_utf8_lossy(&std::fs::read(&running.output)?));
        Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
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
        Background::begin(&crate::root(), "environment", &command).wait();
        assert_eq!(std::fs::read_to_string(&file).expect("it has written"), "done");
        std::fs::remove_file(&file).expect("it is there");
    }

    #[test]
    fn a_command_that_fails_fails_its_step() {
        let ends = |status: &str| {
            let mut command = Command::new("sh");
            let name = format!("exit-{status}");
            let command = command.args(["-c", &format!("exit {status}")]);
            Background::begin_beside(&crate::root(), &name, command)
                .expect("sh")
                .finish()
                .expect("its end")
        };
        assert!(matches!(ends("0"), Outcome::Passed));
        assert!(matches!(ends("1"), Outcome::Failed));
        assert!(matches!(Background::none().finish(), Ok(Outcome::Skipped(_))));
    }
}
