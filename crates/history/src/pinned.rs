//! What readers that are behind still lack of a log that has gone past it: chunks that would be dropped, within a
//! budget of their own. No id is found for them, so it makes no difference to who asks.

use std::collections::VecDeque;

use crate::ids::Place;
use crate::ring::Part;

/// So many bytes are kept for readers that are behind, beyond the log's budget.
pub const PINNED_BYTES_MAX: usize = 128 << 20;

#[derive(Debug)]
pub(crate) struct Pinned {
    /// Where the reader is that is furthest behind.
    pin: Option<Place>,
    /// Chunks, oldest first, each with the place of its last entry.
    chunks: VecDeque<(Place, Part)>,
    bytes: usize,
    /// All entries behind this place are here, or not gone from the log's chunks.
    from: Place,
}

impl Pinned {
    pub(crate) fn new(here: Place) -> Self {
        Self { pin: None, chunks: VecDeque::new(), bytes: 0, from: here }
    }

    /// The log begins here.
    pub(crate) fn begin(&mut self, here: Place) {
        self.chunks.clear();
        (self.bytes, self.from) = (0, here);
    }

    /// Whether anybody reads the log who may be behind.
    pub(crate) fn has_readers(&self) -> bool {
        self.pin.is_some()
    }

    /// From where on all is here or in the log's chunks.
    pub(crate) fn from(&self) -> Place {
        self.from
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A chunk goes from the log.
    pub(crate) fn take(&mut self, chunk: Part) {
        let last = chunk.entries().last().map(|entry| Place(entry.header.place));
        let last = last.expect("a chunk has entries");
        if self.pin.is_none_or(|pin| pin >= last) {
            return self.begin(last);
        }
        self.bytes += chunk.bytes().len();
        self.chunks.push_back((last, chunk));
        while self.bytes > PINNED_BYTES_MAX {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let (last, chunk) = self.chunks.pop_front().expect("it has bytes");
        self.bytes -= chunk.bytes().len();
        self.from = last;
    }

    /// Nobody lacks what is before this place; `None` if nobody lacks anything.
    pub(crate) fn pin(&mut self, pin: Option<Place>) {
        self.pin = pin;
        while self.chunks.front().is_some_and(|(last, _)| pin.is_none_or(|pin| pin >= *last)) {
            self.drop_oldest();
        }
    }

    /// Chunks with all entries behind a place that are here.
    pub(crate) fn since(&self, place: Place) -> impl Iterator<Item = &Part> {
        let first = self.chunks.partition_point(|(last, _)| *last <= place);
        self.chunks.range(first..).map(|(_, chunk)| chunk)
    }
}
