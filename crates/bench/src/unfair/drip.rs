//! Clients that never end a big message but send a byte of it now and then, while another one has
//! messages of 100 KB answered: a few long ones; one as long as Weir reads without turns, and many
//! short ones; hundreds in between, from the moment on when they begin.

use std::time::{Duration, Instant};

use serde_json::json;

use super::DB;
use super::scene::{PATIENCE, Scene, TWO, name, request};
use crate::Error;
use crate::client::Target;
use crate::crowd::Crowd;
use crate::stats::Latencies;

/// How often each of them sends a byte.
const DRIP: Duration = Duration::from_millis(400);
/// How many clients send how many bytes as fast as the server takes them.
type Mix = &'static [(usize, usize)];
/// Together more than the 512 MiB that Weir reads of big messages until it takes them in turn.
const FEW: Mix = &[(5, 120_000_000)];
/// Beyond that, and beyond what short messages may be then.
const MIXED: Mix = &[(1, 520_000_000), (80, 1_000_000)];
/// Each just too long for a short one.
const MANY: Mix = &[(700, 1_100_000)];
/// What is sent of that at a time.
const PIECE_BYTES: usize = 1_000_000;
/// How many of those are sent before answers are looked for again: what this program itself is busy
/// with is no server's delay.
const PIECES_A_TURN: usize = 8;
/// The beginnings are with the server, or will not be, when so long nothing more is taken.
const STUCK: Duration = Duration::from_secs(1);
/// A string of the messages that are answered.
const BYTES: usize = 100_000;
const ROWS: usize = 10;

/// The beginning of a message that never ends.
fn beginning() -> Vec<u8> {
    let begin =
        format!(r#"{{"id":1,"method":"transact","params":["{DB}",{{"op":"comment","comment":""#);
    begin.into_bytes()
}

/// The clients that drip.
struct Drip {
    crowd: Crowd,
    dripping: Vec<Dripping>,
    piece: Vec<u8>,
    /// Whose turn to send is first.
    first: usize,
    dripped: Instant,
    /// When somebody last could send a piece.
    flowed: Instant,
    closed: u64,
}

struct Dripping {
    token: usize,
    /// How long the beginning is, and what is left of it.
    bytes: usize,
    left: usize,
}

impl Drip {
    fn begin(scene: &Scene<'_>, mix: Mix) -> Result<Self, Error> {
        let (crowd, now) = (Crowd::new()?, Instant::now());
        let mut drip = Self {
            crowd,
            dripping: Vec::new(),
            piece: vec![b'x'; scene.count(PIECE_BYTES)],
            first: 0,
            dripped: now,
            flowed: now,
            closed: 0,
        };
        for (clients, bytes) in mix {
            for _ in 0..*clients {
                let dripping = drip.join(scene.target, scene.count(*bytes))?;
                drip.dripping.push(dripping);
            }
        }
        Ok(drip)
    }

    fn join(&mut self, target: &Target, bytes: usize) -> Result<Dripping, Error> {
        let token = self.crowd.join(target)?;
        self.crowd.send(token, &beginning())?;
        Ok(Dripping { token, bytes, left: bytes })
    }

    /// Whether all beginnings are sent, as far as the server takes them.
    fn has_begun(&self) -> bool {
        self.dripping.iter().all(|dripping| dripping.left == 0) || self.flowed.elapsed() > STUCK
    }

    /// Sends the next bytes, when it is time; who was cut off begins anew.
    fn turn(&mut self, target: &Target) -> Result<(), Error> {
        self.crowd.turn(Duration::from_millis(5))?;
        let is_due = self.dripped.elapsed() >= DRIP;
        if is_due {
            self.dripped = Instant::now();
        }
        let (count, first) = (self.dripping.len(), self.first);
        let mut pieces = 0;
        for n in (first..count).chain(0..first) {
            let Dripping { token, bytes, left } = self.dripping[n];
            if !self.crowd.is_open(token) {
                self.closed += 1;
                self.dripping[n] = self.join(target, bytes)?;
            } else if !self.crowd.has_sent(token) {
                continue;
            } else if left > 0 {
                if pieces == PIECES_A_TURN {
                    continue;
                }
                pieces += 1;
                self.first = (n + 1) % count;
                let piece = left.min(self.piece.len());
                self.crowd.send(token, &self.piece[..piece])?;
                self.dripping[n].left -= piece;
                self.flowed = Instant::now();
            } else if is_due {
                self.crowd.send(token, b"x")?;
            }
        }
        Ok(())
    }
}

pub(super) fn few(scene: &mut Scene<'_>) -> Result<(), Error> {
    measure_begun(scene, FEW)
}

pub(super) fn mixed(scene: &mut Scene<'_>) -> Result<(), Error> {
    measure_begun(scene, MIXED)
}

pub(super) fn many(scene: &mut Scene<'_>) -> Result<(), Error> {
    let drip = Drip::begin(scene, MANY)?;
    measure(scene, drip)
}

/// Once all beginnings are with the server, as far as it takes them.
fn measure_begun(scene: &mut Scene<'_>, mix: Mix) -> Result<(), Error> {
    let (mut drip, start) = (Drip::begin(scene, mix)?, Instant::now());
    while !drip.has_begun() && start.elapsed() < PATIENCE {
        drip.turn(scene.target)?;
    }
    measure(scene, drip)
}

/// Clients drip, another one sends messages of 100 KB.
fn measure(scene: &mut Scene<'_>, mut drip: Drip) -> Result<(), Error> {
    scene.fill(ROWS)?;
    let writer = drip.crowd.join(scene.target)?;
    scene.beside(TWO, &mut |scene| {
        let mut latencies = Latencies::default();
        let (start, limit) = (Instant::now(), 2 * scene.size.limit);
        // A first answer is waited for longer: a short line has to tell a slow one from none.
        let goes_on = |drip: &Drip| {
            let limit = if drip.crowd.answers(writer) == 0 { limit.max(PATIENCE) } else { limit };
            start.elapsed() < limit && drip.crowd.is_open(writer)
        };
        let mut n = 0_usize;
        while goes_on(&drip) {
            let update = json!({"op": "update", "table": scene.table,
                "where": [["name", "==", name(n % ROWS)]],
                "row": {"value": format!("{n} {}", "x".repeat(BYTES))}});
            let sent = Instant::now();
            drip.crowd.send(writer, &request("transact", &json!([DB, update])))?;
            n += 1;
            while drip.crowd.answers(writer) < n as u64 && goes_on(&drip) {
                drip.turn(scene.target)?;
            }
            // One that has not come when the time is over took at least so long.
            latencies.push(sent.elapsed());
        }
        scene.push("100 KB, answer p50 ms", 1, latencies.percentile(50.0) / 1e3);
        scene.push("100 KB, answer longest ms", 1, latencies.percentile(100.0) / 1e3);
        scene.push("100 KB, answers", 0, drip.crowd.answers(writer) as f64);
        scene.push("dripping clients cut off", 0, drip.closed as f64);
        Ok(())
    })
}
