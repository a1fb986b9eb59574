//! What is asked for: `["DB", "now", {"level": ..., "count": ..., "timeout": ...}]`, or the words of
//! an admin.

use std::num::NonZeroUsize;

use weir_data::{Error, Uuid};
use weir_json::Text;

use crate::ids::DbId;

/// How long a wait takes at most, in milliseconds, if nobody says.
const TIMEOUT_MS: u64 = 60_000;

/// How long a wait takes at most, in milliseconds, whatever somebody says.
const TIMEOUT_MS_MAX: u64 = 3_600_000;

/// How far a transaction must have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// The updates are queued for the client.
    Queued,
    /// The updates are with the kernel.
    Written,
    /// The client's kernel has acknowledged them, or the client has read them from its unix socket.
    Acknowledged,
}

impl Level {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "queued" => Some(Self::Queued),
            "written" => Some(Self::Written),
            "acknowledged" => Some(Self::Acknowledged),
            _ => None,
        }
    }
}

/// The state that is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// What is committed now.
    Now,
    /// The state of this id.
    Id(Uuid),
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "now" => Some(Self::Now),
            text => Uuid::parse_bytes(text.as_bytes()).map(Self::Id),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) state: State,
    pub(crate) level: Level,
    /// How many sessions must have it; none are all that watch the database now.
    pub(crate) count: Option<NonZeroUsize>,
    pub(crate) timeout_us: u64,
}

impl Default for Wish {
    fn default() -> Self {
        let timeout_us = TIMEOUT_MS * 1000;
        Self { state: State::Now, level: Level::Acknowledged, count: None, timeout_us }
    }
}

/// What is waited for, in a database that is there.
pub(crate) struct Asked {
    pub(crate) db: DbId,
    /// The position that is to be delivered.
    pub(crate) position: u64,
    pub(crate) level: Level,
    pub(crate) count: Option<NonZeroUsize>,
    pub(crate) timeout_us: u64,
}

impl Wish {
    /// The parameters of `weir_wait_delivered`, of which the first is the database's name.
    ///
    /// # Errors
    /// What is wrong with them, for the client.
    pub(crate) fn of_params(params: Text<'_>) -> Result<Self, Error> {
        let wrong =
            |details: &str| Error::syntax(params, format!("weir_wait_delivered: {details}"));
        let mut wish = Self::default();
        let mut rest = params.elements().into_iter().flatten().skip(1);
        if let Some(state) = rest.next() {
            let state = state.str().and_then(|text| State::parse(&text));
            wish.state =
                state.ok_or_else(|| wrong("\"now\" or the id of a transaction expected"))?;
        }
        if let Some(options) = rest.next() {
            let options = options.object().ok_or_else(|| wrong("options must be an object"))?;
            for (name, value) in options.iter() {
                wish.take(name, value).map_err(|details| wrong(&details))?;
            }
        }
        if rest.next().is_some() {
            return Err(wrong("at most three parameters expected"));
        }
        Ok(wish)
    }

    fn take(&mut self, name: &[u8], value: Text<'_>) -> Result<(), String> {
        match name {
            b"level" => {
                let level = value.str().and_then(|name| Level::parse(&name));
                self.level = level.ok_or("level must be queued, written or acknowledged")?;
            }
            b"count" => {
                let number = value.integer().and_then(|number| usize::try_from(number).ok());
                let number = number.and_then(NonZeroUsize::new);
                self.count = Some(number.ok_or("count must be an integer above 0")?);
            }
            b"timeout" => {
                let ms = value.integer().and_then(|ms| u64::try_from(ms).ok());
                self.timeout_us = us(ms.ok_or("timeout must be a number of milliseconds")?);
            }
            name => return Err(format!("unknown option {}", String::from_utf8_lossy(name))),
        }
        Ok(())
    }

    /// The words of `weir/wait-delivered` behind the database's name: `[TXN|now] [N|all] [SECONDS]`.
    ///
    /// # Errors
    /// What is wrong with them, for the admin.
    pub(crate) fn of_words(words: &[String]) -> Result<Self, String> {
        let mut wish = Self::default();
        if let Some(state) = words.first() {
            let state = State::parse(state);
            wish.state = state.ok_or("\"now\" or the id of a transaction expected")?;
        }
        if let Some(count) = words.get(1).filter(|count| *count != "all") {
            let count = count.parse().map_err(|_| "\"all\" or a number above 0 expected")?;
            wish.count = Some(count);
        }
        if let Some(seconds) = words.get(2) {
            let seconds: u64 = seconds.parse().map_err(|_| "a number of seconds expected")?;
            wish.timeout_us = us(seconds.saturating_mul(1000));
        }
        Ok(wish)
    }

    /// What is waited for, once the database and the position of the state are known.
    pub(crate) fn at(self, db: DbId, position: u64) -> Asked {
        let Self { level, count, timeout_us, .. } = self;
        Asked { db, position, level, count, timeout_us }
    }
}

fn us(ms: u64) -> u64 {
    ms.min(TIMEOUT_MS_MAX) * 1000
}
