//! Texts of entries that leave memory, and are read back from the file for members that lack them.

use super::Member;
use crate::consensus::Fetch;
use crate::effect::{Effect, Level};

/// Texts that are not in memory.
#[derive(Debug)]
pub(crate) struct Texts {
    /// Bytes that stay in memory.
    bytes_max: usize,
    /// What is being read back.
    reading: Option<Fetch>,
}

impl Texts {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, reading: None }
    }

    /// Bytes that stay in memory.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }
}

impl Member {
    /// Lets texts go, and asks for those that somebody lacks.
    pub(super) fn manage_texts(&mut self) {
        self.node.release(self.snapshots.copies.keeps_behind(), self.texts.bytes_max);
        self.limit_copy();
        if self.texts.reading.is_none()
            && !self.snapshots.is_replacing_file()
            && let Some(fetch) = self.node.next_fetch()
        {
            self.effects.push_back(Effect::ReadTexts(fetch.place));
            self.texts.reading = Some(fetch);
        }
    }

    /// Texts are here, for whoever lacks them.
    pub(super) fn texts_read(&mut self, result: Result<Vec<u8>, String>) {
        let fetch = self.texts.reading.take().expect("texts were asked for");
        let taken = result.and_then(|bytes| self.node.fetched(&fetch, &bytes));
        if let Err(error) = taken {
            // The library asks again when it hears of whoever lacks them.
            let text = format!("{}: cannot read entries back: {error}", self.name);
            self.log_limited("texts", Level::Warning, text);
            self.effects.push_back(Effect::RewriteFile);
        }
    }
}
