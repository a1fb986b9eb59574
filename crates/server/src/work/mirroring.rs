//! A long message of a source: its rows become a database's own.

use std::collections::BTreeSet;

use weir_data::{Delta, Error, TableId, UuidSource};
use weir_engine::{Database, replicate};
use weir_log::standalone::{self, Form, Style};
use weir_upstream::{RowReader, Rows};

/// A message and the tables that are to be like it.
pub struct Mirroring {
    pub(crate) reader: RowReader,
    pub(crate) message: Vec<u8>,
    pub(crate) database: Box<Database>,
    /// Tables of which no other rows stay, if the message has all.
    pub(crate) replaced: BTreeSet<TableId>,
    pub(crate) form: Form,
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
    Read { is_all: bool, result: Result<(Delta, Vec<u8>), Error> },
}

impl Mirroring {
    /// Reads the rows and makes them the database's own.
    pub(crate) fn run(self) -> Mirrored {
        let Self { reader, message, mut database, replaced, form, date_ms, seed } = self;
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
            let (mut record, store) = (Vec::new(), database.store());
            let style = Style { form, is_marked: false };
            standalone::write_transaction_as(style, &mut record, &delta, store, date_ms, None);
            (delta, record)
        });
        Mirrored { database, result: Reading::Read { is_all, result } }
    }
}
