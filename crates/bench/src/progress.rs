//! What is going on, on the terminal: a bar while a phase runs, a line when it has ended.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the bar of a phase without steps moves.
const TICK: Duration = Duration::from_millis(200);

/// The bar. Without a terminal there is none, only the lines.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            bar.set_style(style(true));
            bar
        });
        Self { bar }
    }

    /// A bar that shows nothing, for tests.
    #[cfg(test)]
    pub(crate) fn hidden() -> Self {
        Self { bar: None }
    }

    /// A line that stays.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// A phase of `total` steps begins.
    pub(crate) fn phase(&self, name: &str, total: usize) {
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.set_style(style(true));
            bar.reset();
            bar.set_length(total as u64);
            bar.set_message(name.to_owned());
        }
    }

    /// Something of unknown length begins.
    pub(crate) fn wait(&self, name: &str) {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_style(style(false));
            bar.set_message(name.to_owned());
            bar.enable_steady_tick(TICK);
        }
    }

    /// Steps of the phase that are done.
    pub(crate) fn at(&self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        }
    }

    /// Takes the bar off the terminal.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }
}

fn style(steps: bool) -> ProgressStyle {
    let template = if steps {
        "{msg:<40} {wide_bar} {human_pos}/{human_len} {per_sec:>12} {eta:>5}"
    } else {
        "{msg:<40} {spinner} {elapsed}"
    };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
