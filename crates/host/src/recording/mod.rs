//! `--record` and `--replay`: a run that can be had again (ovsdb-server(1), "Replay Options").
//!
//! The core is a function of its seed and of the calls that the shell makes, so these are what a
//! recording holds, one item each, in their order:
//!
//! 1. the start: seed, time, what was saved before a crash, and the remotes, to compare;
//! 2. each event with the time that the core was told, each beginning and end of a round, each flush of
//!    updates;
//! 3. what came of files and of helpers, without their content: whether it was well, and what each
//!    append had been;
//! 4. admin commands that the shell itself answers, for what they do to the log, and log lines of
//!    the shell about sockets, which a replay does not have;
//! 5. that the service began, and how the run ended.
//!
//! A replay has no sockets, timers or clock: it reads items, makes the same calls, and executes the
//! effects on files and on the log. Files are opened, appended to, compacted and converted for
//! real, and helpers work for real; what comes of it is told to the core at the place where the
//! recording has it. Whatever differs (another database, say) ends the replay with an error.
//!
//! `file` is the form on disk, which `ovsdb-client` shares, `fields` what an item is made of,
//! `item` and `event` the server's items. `docs/decisions/007` has the reasons.

mod event;
mod fields;
mod file;
#[cfg(fuzzing)]
mod fuzzing;
mod item;
#[cfg(test)]
mod tests;

#[cfg(fuzzing)]
pub(crate) use fuzzing::read_recording;

pub use fields::{Fields, Malformed, put_bytes, put_result, put_u64};
pub use file::{ITEM_BYTES_MAX, ReadError, Reader, Writer};

pub(crate) use event::{Beside, Conversion, Recorded};
pub(crate) use file::digest;
pub(crate) use item::{End, Item, Start};

use std::path::PathBuf;
use std::sync::Mutex;

use weir_server::event::{Event, Now};

use crate::vlog::{Level, Vlog};

/// What the command line says about recordings; directories are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Recording {
    /// Nothing.
    #[default]
    Off,
    /// `--record`: write one in this directory.
    Record(PathBuf),
    /// `--replay`: run from the one in this directory.
    Replay(PathBuf),
}

/// Writes down what happens in a run. A failure ends the recording, never the server.
pub(crate) struct Recorder {
    /// `None` behind a failure.
    writer: Mutex<Option<Writer>>,
    log: Vlog,
}

impl Recorder {
    pub(crate) fn new(writer: Writer, log: Vlog) -> Self {
        Self { writer: Mutex::new(Some(writer)), log }
    }

    pub(crate) fn event(&self, now: Now, event: &Event) {
        self.write(&item::event(now, event));
    }

    pub(crate) fn item(&self, item: &Item) {
        self.write(&item.encode());
    }

    fn write(&self, item: &[u8]) {
        let mut writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(Err(error)) = writer.as_mut().map(|writer| writer.write(item)) else { return };
        *writer = None;
        self.log.log("ovs_replay", Level::Err, &format!("{error}; the recording ends here"));
    }
}
