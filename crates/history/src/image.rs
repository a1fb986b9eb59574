//! The recorded part of a log at a place: what goes to a side file.

use std::sync::Arc;

use weir_data::TableId;

use crate::chain::{Binding, Chain, RecordHash};
use crate::entry::{COST_OF_ENTRY, Header};
use crate::ids::Place;
use crate::renumbering::{Renumbering, renumber};
use crate::ring::{Mark, Part};
use crate::side_file;

/// The recorded part of a log. It shares the log's chunks; making one costs no more than a reader.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) is_kept: bool,
    pub(crate) chain: Chain,
    pub(crate) place: Place,
    pub(crate) records: u64,
    pub(crate) low_water: Mark,
    pub(crate) begins: Vec<Place>,
    pub(crate) parts: Vec<Part>,
}

impl Image {
    /// The log of a file that is converted at this point: the chain goes on with the record of the
    /// new `schema`, which has `tables` tables; `target` as for `History::convert`.
    #[must_use]
    pub fn converted(
        mut self,
        target: &dyn Fn(TableId) -> Option<TableId>,
        tables: usize,
        schema: RecordHash,
    ) -> Self {
        self.chain = self.chain.then(schema);
        self.place.0 += 1;
        self.records += 1;
        let renumbering = Renumbering::of(target, self.begins.len());
        self.begins = renumbering.begins(&self.begins, tables, self.place);
        if !renumbering.is_identity() {
            let (renumbering, mut last) = (Arc::new(renumbering), None);
            for part in &mut self.parts {
                part.renumbering = Some(renumber(&part.renumbering, &renumbering, &mut last));
            }
        }
        let (place, id) = (self.place.0, self.chain.id().to_u128());
        let header = Header { len: 0, cost: COST_OF_ENTRY as u32, place, id };
        self.parts.push(Part::whole(header.to_bytes().to_vec(), None));
        self
    }

    /// The chain behind the record that the image stands for.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// Whether changes are kept; otherwise there is nothing that is worth a side file.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Writes the side file of the file that `binding` names, in pieces.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write(
        &self,
        binding: &Binding,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        side_file::write(self, binding, sink)
    }
}
