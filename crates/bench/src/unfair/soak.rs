//! `weir bench unfair --minutes N`: all lines at the same server at the same time, again and
//! again, with the server's memory and open files told as they go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Line;
use super::scene::{PATIENCE, Scene, Size, THREE, prepare, waited};
use crate::Error;
use crate::client::Target;
use crate::error::fail;
use crate::procfs;
use crate::pulse::Pulse;
use crate::report::{Curve, Figures};
use crate::rounds::Bench;
use crate::running::Running;
use crate::stats::median;

/// How often memory and files are read.
const SAMPLES: u32 = 60;
const STEP_MAX: Duration = Duration::from_secs(60);
/// A pause after a line that was refused at once.
const PAUSE: Duration = Duration::from_millis(100);
/// How long everything rests in the end.
const REST: Duration = Duration::from_secs(10);
const SECTION: &str = "soak";
/// What counts as flat: a quarter of the run against an earlier one, and what always comes and
/// goes.
const FLAT: f64 = 1.1;
const SLACK: [f64; 2] = [8.0, 50.0];

/// What was read at one time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seconds: f64,
    /// Megabytes resident, and open files.
    values: [f64; 2],
}

/// What the threads share.
struct Mix {
    stop: AtomicBool,
    done: AtomicU64,
    refused: AtomicU64,
}

/// Mixes the lines for so long.
pub(super) fn run(
    bench: &Bench,
    running: &Running,
    lines: &[&'static Line],
    size: Size,
    time: Duration,
) -> Result<Figures, Error> {
    prepare(&running.target)?;
    let (mut figures, mut samples) = (Figures::default(), Vec::new());
    let first = sample(running, Duration::ZERO)?;
    running.reset_peak();
    let mix =
        Mix { stop: AtomicBool::new(false), done: AtomicU64::new(0), refused: AtomicU64::new(0) };
    let pulses: Result<Vec<_>, Error> =
        THREE.iter().map(|victim| victim.begin(&running.target)).collect();
    let pulses = pulses?;
    let start = Instant::now();
    let watched = std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(|| mix.repeat(line, size, &running.target));
        }
        let watched = watch(bench, running, &mix, start, time, &mut samples);
        mix.stop.store(true, Ordering::Relaxed);
        watched
    });
    victims(pulses, &mut figures)?;
    watched?;
    std::thread::sleep(REST.min(time));
    let last = sample(running, start.elapsed())?;
    let mut push = |name: &str, digits, value| figures.push(SECTION, name, digits, value);
    push("lines run", 0, mix.done.load(Ordering::Relaxed) as f64);
    push("of them refused or cut off", 0, mix.refused.load(Ordering::Relaxed) as f64);
    judge(&samples, first.zip(last), &mut figures);
    running.finish(SECTION, &mut figures)?;
    Ok(figures)
}

impl Mix {
    /// One line after the other of its kind. A refusal is what a server may answer with here.
    fn repeat(&self, line: &Line, size: Size, target: &Target) {
        let mut scene = Scene::among_others(line, size, target);
        while !self.stop.load(Ordering::Relaxed) {
            let run = (line.run)(&mut scene);
            self.done.fetch_add(1, Ordering::Relaxed);
            if run.is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Tells memory and files until the time is over.
fn watch(
    bench: &Bench,
    running: &Running,
    mix: &Mix,
    start: Instant,
    time: Duration,
    samples: &mut Vec<Sample>,
) -> Result<(), Error> {
    let step = (time / SAMPLES).min(STEP_MAX);
    while start.elapsed() < time {
        std::thread::sleep(step.min(time.saturating_sub(start.elapsed())));
        let Some(sample) = sample(running, start.elapsed())? else { continue };
        let ([rss, files], done) = (sample.values, mix.done.load(Ordering::Relaxed));
        bench.progress.note(&format!(
            "  {:6.0} s: {rss:7.1} MB resident, {files:5} files, {done} lines run",
            sample.seconds
        ));
        samples.push(sample);
    }
    Ok(())
}

fn sample(running: &Running, at: Duration) -> Result<Option<Sample>, Error> {
    let Some((memory, pid)) = running.memory()?.zip(running.pid) else { return Ok(None) };
    let values = [memory.rss as f64 / 1e6, procfs::files(pid)? as f64];
    Ok(Some(Sample { seconds: at.as_secs_f64(), values }))
}

fn victims(pulses: Vec<Pulse>, figures: &mut Figures) -> Result<(), Error> {
    for (victim, pulse) in THREE.iter().zip(pulses) {
        let latencies = pulse.stop_within(PATIENCE)?;
        if latencies.count() == 0 {
            fail!("a victim has had no answer");
        }
        waited(*victim, &latencies, SECTION, figures);
    }
    Ok(())
}

/// Whether the last quarter has more than the second one.
fn judge(samples: &[Sample], ends: Option<(Sample, Sample)>, figures: &mut Figures) {
    let quarter = |n: usize, value: usize| {
        let part = samples.len() * n / 4..samples.len() * (n + 1) / 4;
        let values: Vec<_> = samples[part].iter().map(|sample| sample.values[value]).collect();
        median(&values)
    };
    for (value, name) in ["RSS MB", "files"].into_iter().enumerate() {
        if let Some((second, last)) = quarter(1, value).zip(quarter(3, value)) {
            let flat = last <= second * FLAT + SLACK[value];
            figures.push(SECTION, &format!("{name}, second quarter"), 1, second);
            figures.push(SECTION, &format!("{name}, last quarter"), 1, last);
            figures.push(SECTION, &format!("{name} flat (1: yes)"), 0, f64::from(u8::from(flat)));
        }
        if let Some((first, last)) = ends {
            figures.push(SECTION, &format!("{name} before"), 1, first.values[value]);
            figures.push(SECTION, &format!("{name} when all have left"), 1, last.values[value]);
        }
    }
    figures.draw(Curve {
        plot: "open files over time".into(),
        axes: ["seconds since the start".into(), "open files".into()],
        log: [false; 2],
        points: samples.iter().map(|sample| (sample.seconds, sample.values[1])).collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(values: impl Iterator<Item = f64>) -> bool {
        let samples: Vec<_> =
            values.map(|rss| Sample { seconds: 0.0, values: [rss, 10.0] }).collect();
        let mut figures = Figures::default();
        judge(&samples, None, &mut figures);
        figures.value(SECTION, "RSS MB flat (1: yes)") == Some(1.0)
    }

    #[test]
    fn what_grows_all_the_time_is_not_flat() {
        assert!(flat((0..40).map(|n| 100.0 + f64::from(n % 5))));
        assert!(flat((0..40).map(|n| 100.0 + f64::from(n.min(10)) * 20.0)));
        assert!(!flat((0..40).map(|n| 100.0 + f64::from(n) * 2.0)));
    }
}
