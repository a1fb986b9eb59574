//! Results that are too long for one buffer: a `select` of a reader on a snapshot keeps the rows that
//! come after its first piece, and they are written when somebody takes them.

use std::sync::Arc;

use weir_data::{ColumnId, Row, Schema, TableId};

use crate::ops::select::write_row;

/// Bytes of a piece of a long result, or a row more.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What the results of one request may take before one more `select` adds to them, in bytes; beyond
/// it that fails. A short request could ask for all rows any number of times.
pub(crate) const RESULTS_BYTES_MAX: usize = 128 << 20;

/// Rows of a result that are not written yet.
#[derive(Debug)]
pub(crate) struct LateRows {
    /// Where in the reply they belong.
    pub(crate) at: usize,
    pub(crate) table: TableId,
    /// The columns of each row, in the order in which they are written.
    pub(crate) columns: Vec<ColumnId>,
    pub(crate) rows: Vec<Row>,
}

impl LateRows {
    /// What they occupy, but for the rows themselves, which are the database's as a rule.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.columns) + size_of_val(&*self.rows)
    }
}

/// A reply that is not all written: its pieces, one after another. A clone goes on from where the
/// original is.
#[derive(Clone, Debug)]
pub struct LateReply {
    parts: Arc<Parts>,
    /// Bytes of the reply that have been handed out.
    written: usize,
    /// Runs of rows that have been handed out.
    runs: usize,
    /// Rows of the next run that have been handed out.
    rows: usize,
}

#[derive(Debug)]
struct Parts {
    schema: Arc<Schema>,
    reply: Vec<u8>,
    late: Vec<LateRows>,
}

impl LateReply {
    pub(crate) fn new(schema: Arc<Schema>, reply: Vec<u8>, late: Vec<LateRows>) -> Self {
        Self { parts: Arc::new(Parts { schema, reply, late }), written: 0, runs: 0, rows: 0 }
    }

    /// What it occupies in bytes, but for the rows themselves, which are the database's as a rule.
    pub fn bytes(&self) -> usize {
        let Parts { reply, late, .. } = &*self.parts;
        reply.capacity() + late.iter().map(LateRows::bytes).sum::<usize>()
    }

    /// Appends the next piece; false if it is the last.
    pub fn write_piece(&mut self, out: &mut Vec<u8>) -> bool {
        let parts = Arc::clone(&self.parts);
        let enough = out.len() + PIECE_BYTES;
        while let Some(run) = parts.late.get(self.runs) {
            out.extend_from_slice(&parts.reply[self.written..run.at]);
            self.written = run.at;
            let schema = parts.schema.table(run.table);
            for row in &run.rows[self.rows..] {
                if out.len() >= enough {
                    return true;
                }
                write_row(row, false, &run.columns, schema, out);
                self.rows += 1;
            }
            (self.runs, self.rows) = (self.runs + 1, 0);
        }
        out.extend_from_slice(&parts.reply[self.written..]);
        self.written = parts.reply.len();
        false
    }
}
