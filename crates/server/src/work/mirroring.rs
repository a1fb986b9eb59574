//! A long message of a source: its rows become a database's own.

use std::collections::BTreeSet;

use weir_data::{Delta, Error, TableId, UuidSource};
use weir_engine::{Database, replicate};
use weir_log::standalone::{self, Style};
use weir_upstream::{RowReader, Rows};

use crate::work::{MadeRecord, record_of};

/// A message and the tables that are to be like it.
pub struct Mirroring {
    pub(crate) reader: RowReader,
    pub(crate) message: Vec<u8>,
    pub(crate) database: Box<Database>,
    /// Tables of which no other rows stay, if the message has all.
    pub(crate) replaced: BTreeSet<TableId>,
    pub(crate) style: Style,
    /// Wall clock for the log record.
    pub(crate) date_ms: i64,
    pub(crate) seed: [u64; 4],
}

/// The tables, and what the message made of them.
pub struct Mirrored {
    pub(crate) database: Box<Database>,
    pub(crate) result: Reading,
}

/// What a helper has made of a source's message.
pub(crate) enum Reading {
    /// The message is not for this.
    Unread(Vec<u8>),
    /// All rows, or changed ones; what that changed here, and its record.
    Read { is_all: bool, result: Result<(Delta, Option<MadeRecord>), Error> },
}

impl Mirroring {
    /// Reads the rows and makes them the database's own.
    pub(crate) fn run(self) -> Mirrored {
        let Self { reader, message, mut database, replaced, style, date_ms, seed } = self;
        let mut uuids = UuidSource::new(seed);
        let (is_all, changed) = match reader.read(&message) {
            None => return Mirrored { database, result: Reading::Unread(message) },
            Some(Rows::All(images)) => {
                let replaces = |table| replaced.contains(&table);
                (true, replicate::replace_rows(&mut database, images, replaces, &mut uuids))
            }
            Some(Rows::Changed(images)) => {
                (false, replicate::apply_images(&mut database, images, &mut uuids))
            }
        };
        let result = changed.map(|delta| {
            let (mut bytes, store) = (Vec::new(), database.store());
            let written =
                standalone::write_transaction_as(style, &mut bytes, &delta, store, date_ms, None);
            let record =
                written.map(|written| MadeRecord { bytes, record: record_of(written), date_ms });
            (delta, record)
        });
        Mirrored { database, result: Reading::Read { is_all, result } }
    }
}
