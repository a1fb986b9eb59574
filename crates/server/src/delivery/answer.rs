//! What those are told who asked for deliveries.

use weir_json::{Value, object};

use crate::aligned::aligned;
use crate::database::Told;
use crate::delivery::wait::{Stage, Wait};
use crate::event::Outbox;

/// Most sessions that an answer names; the others are counted.
const SHOWN_MAX: usize = 1000;

/// How many positions a session is behind.
fn behind(told: Told, shown: Option<u64>) -> u64 {
    let up_to = told.up_to.zip(shown);
    up_to.map_or(0, |(up_to, shown)| shown.saturating_sub(up_to))
}

/// A session that watches a database, in the table of deliveries.
pub(super) struct Row {
    database: String,
    client: String,
    behind: u64,
    is_busy: bool,
    outbox: Outbox,
}

impl Row {
    pub(super) fn new(
        database: &str,
        client: &str,
        told: Told,
        shown: Option<u64>,
        outbox: Outbox,
    ) -> Self {
        let (database, client) = (database.to_owned(), client.to_owned());
        Self { database, client, behind: behind(told, shown), is_busy: told.is_busy, outbox }
    }

    fn cells(&self) -> [String; 5] {
        let Outbox { queued, written, acknowledged } = self.outbox;
        let behind = match (self.behind, self.is_busy) {
            (0, true) => "-".to_owned(),
            (behind, _) => behind.to_string(),
        };
        let unwritten = queued.saturating_sub(written).to_string();
        let unacknowledged = written.saturating_sub(acknowledged).to_string();
        [self.database.clone(), self.client.clone(), behind, unwritten, unacknowledged]
    }
}

/// The table of deliveries, those furthest behind first in each database.
pub(super) fn table(mut rows: Vec<Row>) -> String {
    let unread = |row: &Row| row.outbox.queued.saturating_sub(row.outbox.acknowledged);
    rows.sort_by(|a, b| {
        let order = a.database.cmp(&b.database);
        let order = order.then(b.behind.cmp(&a.behind)).then(unread(b).cmp(&unread(a)));
        order.then(a.client.cmp(&b.client))
    });
    let more = rows.len().saturating_sub(SHOWN_MAX);
    let head = ["database", "client", "behind", "queued", "unacknowledged"].map(str::to_owned);
    let shown = rows.iter().take(SHOWN_MAX).map(Row::cells);
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(shown).collect();
    let mut text = aligned(&lines, 2);
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    text
}

/// A session that has not got what was waited for.
pub(super) struct Missing {
    client: String,
    behind: u64,
    level: &'static str,
}

impl Missing {
    pub(super) fn new(client: &str, stage: Stage, told: Told, shown: Option<u64>) -> Self {
        let level = match stage {
            Stage::Behind => "none",
            Stage::Marked { is_written: true, .. } | Stage::Done => "written",
            Stage::Queued { .. } | Stage::Marked { .. } => "queued",
        };
        Self { client: client.to_owned(), behind: behind(told, shown), level }
    }
}

/// How a wait has ended.
pub(super) struct Outcome {
    is_complete: bool,
    clients: usize,
    delivered: usize,
    left: usize,
    wanted: usize,
    missing: Vec<Missing>,
}

impl Outcome {
    pub(super) fn new(wait: &Wait, missing: Vec<Missing>) -> Self {
        let (clients, left) = wait.clients();
        let (delivered, wanted) = (wait.delivered(), wait.wanted());
        Self { is_complete: wait.is_complete(), clients, delivered, left, wanted, missing }
    }

    /// The result of `weir_wait_delivered`.
    pub(super) fn to_json(&self) -> String {
        let missing = self.missing.iter().take(SHOWN_MAX).map(|missing| {
            object([
                ("behind", number(missing.behind)),
                ("client", missing.client.as_str().into()),
                ("level", missing.level.into()),
            ])
        });
        let result = object([
            ("clients", number(self.clients as u64)),
            ("complete", self.is_complete.into()),
            ("delivered", number(self.delivered as u64)),
            ("left", number(self.left as u64)),
            ("missing", Value::Array(missing.collect())),
            ("wanted", number(self.wanted as u64)),
        ]);
        result.to_string()
    }

    /// What an admin is told.
    pub(super) fn to_text(&self) -> Result<String, String> {
        let mut text = format!("{} of {} clients have it", self.delivered, self.clients);
        if self.is_complete {
            return Ok(text + "\n");
        }
        if self.wanted > self.clients {
            text.push_str(&format!(", {} are waited for", self.wanted));
        }
        if self.missing.is_empty() {
            return Err(text);
        }
        let missing: Vec<String> = self
            .missing
            .iter()
            .take(SHOWN_MAX)
            .map(|Missing { client, behind, level }| match *level {
                "none" => format!("{client} (behind by {behind})"),
                level => format!("{client} ({level})"),
            })
            .collect();
        Err(format!("{text}; the others: {}", missing.join(", ")))
    }
}

fn number(count: u64) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}
