//! `cargo xtask shrunk`: the simulators run new seeds in a copy of the tree whose limits are cut down to some bytes.
//! What is split, goes on in pieces, or is full once in a thousand seeds is in each then.
//!
//! The log of changes keeps its limits: a checker promises by them which states are remembered.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::copied;
use crate::step::show;

/// How long the simulators run, the one of members for half of it.
pub(crate) const SECONDS: u64 = 600;

/// A file, and its limits with what they are cut down to.
type Limits = (&'static str, &'static [(&'static str, &'static str)]);

const LIMITS: &[Limits] = &[
    (
        "crates/cluster/src/consensus/node.rs",
        &[
            ("MESSAGE_BYTES_MAX", "300"),
            ("PROBE_BYTES_MAX", "100"),
            ("MESSAGES_IN_FLIGHT", "4"),
            ("COMMITTED_BYTES_MAX", "200"),
        ],
    ),
    ("crates/cluster/src/consensus/store.rs", &[("FETCH_BYTES", "100")]),
    (
        "crates/cluster/src/member/copies.rs",
        &[("BEHIND_BYTES_MAX", "6000"), ("PART_BYTES", "200"), ("PARTS_BYTES_MIN", "2000")],
    ),
    ("crates/cluster/src/member/joining.rs", &[("CAUGHT_UP_ENTRIES", "4")]),
    ("crates/cluster/src/member/promises.rs", &[("OWN_TERMS_MAX", "2")]),
    ("crates/cluster/src/member/snapshots.rs", &[("PIECE_BYTES", "64 << 10")]),
    ("crates/cluster/src/member/steps/mod.rs", &[("WAITING_BYTES_MAX", "800")]),
    ("crates/cluster/src/wire/encode.rs", &[("SHARED_BYTES_MIN", "200")]),
    ("crates/history/src/ring.rs", &[("CHUNK_BYTES", "256"), ("SPARE_BYTES", "64")]),
    (
        "crates/server/src/clusters/answers.rs",
        &[("UNTAKEN_BYTES_MAX", "600"), ("TOLD_BYTES", "100")],
    ),
    ("crates/server/src/clusters/forwards.rs", &[("REPLY_BYTES_MAX", "300")]),
    ("crates/server/src/once.rs", &[("CHANNELS_MAX", "3")]),
    ("crates/server/src/clusters/repetitions.rs", &[("REPETITIONS_MAX", "2")]),
    (
        "crates/server/src/clusters/unapplied.rs",
        &[("UNAPPLIED_BYTES_MAX", "1500"), ("STEP_BYTES_MAX", "300")],
    ),
    (
        "crates/server/src/database/attempts.rs",
        &[("CONFIRMS_MAX", "1"), ("OPEN_MAX", "1"), ("REPLIES_BYTES_MAX", "100")],
    ),
    (
        "crates/server/src/database/conversion.rs",
        &[("FOLLOWED_MAX", "3"), ("TAIL_BYTES_MAX", "20_000")],
    ),
    (
        "crates/server/src/clusters/window.rs",
        &[("ASKED_BYTES_MAX", "600"), ("PAST_BYTES_MAX", "800"), ("PAST_REQUEST_BYTES_MAX", "400")],
    ),
    ("crates/server/src/server/clustering/converting.rs", &[("ROWS_BYTES_MAX", "500")]),
    ("crates/server/src/server/clustering/entries.rs", &[("REPLY_COST_MAX", "200")]),
    ("crates/server/src/database/feeds.rs", &[("STEP_BYTES_MAX", "600")]),
    ("crates/server/src/database/pacing.rs", &[("FLUSH_BYTES_MAX", "2000")]),
    ("crates/server/src/mail.rs", &[("STEP_BYTES_MAX", "300")]),
    ("crates/server/src/monitors/mod.rs", &[("SHARED_BYTES_MIN", "200")]),
    ("crates/server/src/session/gate.rs", &[("FORWARDED_MAX", "3")]),
    (
        "crates/server/src/storage/compaction.rs",
        &[("TAIL_BYTES_MAX", "20_000"), ("EXTEND_BYTES_MIN", "300")],
    ),
    ("crates/server/src/work/mod.rs", &[("EXAMINE_BYTES_MIN", "220")]),
];

/// The tests that run seeds, and the part of `WEIR_SECONDS` for which each does.
const TESTS: [(&str, u64); 2] = [
    ("whatever_happens_nothing_committed_is_lost", 4),
    ("whatever_happens_clients_are_told_the_truth", 1),
];

/// Runs new seeds of both simulators for so many seconds; true if all are well.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<bool> {
    let programs = copied::build(root, "shrunk", |file, bytes| {
        Ok(match LIMITS.iter().find(|(of, _)| *of == file) {
            Some((_, limits)) => {
                cut_down(String::from_utf8(bytes)?, limits).context(file.to_owned())?.into_bytes()
            }
            None => bytes,
        })
    })?;
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let mut are_well = true;
    for (name, times) in TESTS {
        let program = copied::with_test(&programs, name)?;
        println!("{name}: WEIR_SEED={seed}, limits cut down");
        let mut test = Command::new(&program.path);
        test.args(["-q", "--exact", "--nocapture", name]);
        let seconds = seconds / TESTS.len() as u64 * times;
        test.env("WEIR_SEED", seed.to_string()).env("WEIR_SECONDS", seconds.to_string());
        // Without a number, seeds that have failed once come first and take the time of new ones.
        test.env("WEIR_SEEDS", u32::MAX.to_string());
        // So few seeds do not meet each fault as often as it asks.
        test.env_remove("WEIR_COVERAGE");
        are_well &= test.status().with_context(|| show(&test))?.success();
    }
    Ok(are_well)
}

/// A file with other values of these constants, each of which it has once.
fn cut_down(text: String, limits: &[(&str, &str)]) -> Result<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (name, value) in limits {
        let declares = format!("const {name}: ");
        let mut of = lines.iter_mut().filter(|line| line.contains(&declares));
        let (Some(line), None) = (of.next(), of.next()) else {
            bail!("{name} is not declared once");
        };
        let (declared, _) =
            line.split_once(" = ").with_context(|| format!("{name} has no value"))?;
        ensure!(line.ends_with(';'), "{name} has a value of several lines");
        *line = format!("{declared} = {value};");
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who renames or moves a limit looks after what it is cut down to, too.
    #[test]
    fn each_limit_has_its_place() {
        for (file, limits) in LIMITS {
            let text = std::fs::read_to_string(crate::root().join(file)).expect(file);
            let cut = cut_down(text.clone(), limits).expect(file);
            assert_ne!(cut, text, "{file}");
        }
    }
}
