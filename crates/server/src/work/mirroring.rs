//! A long message of a source: its rows become a database's own.

use std::collections::BTreeSet;

use weir_data::{Delta, Error, TableId, UuidSource};
use weir_engine::{Database, replicate};
use weir_log::standalone::{self, Style};
use weir_upstream::news::{News, Read, RowReader, Rows, State};

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
    /// The rows make no sense.
    Wrong(Error),
    /// Rows of this state; what they changed here, and the record of that.
    Read { state: State, result: Result<(Delta, Option<MadeRecord>), Error> },
}

impl Mirroring {
    /// Reads the rows and makes them the database's own.
    pub(crate) fn run(self) -> Mirrored {
        let Self { reader, message, mut database, replaced, style, date_ms, seed } = self;
        let mut uuids = UuidSource::new(seed);
        let News { state, rows, .. } = match reader.read(&message, &mut uuids) {
            Read::News(news) => news,
            Read::Wrong(error) => return Mirrored { database, result: Reading::Wrong(error) },
            Read::Nothing | Read::Ephemeral(_) => {
                return Mirrored { database, result: Reading::Unread(message) };
            }
        };
        let changed = match rows {
            Rows::All(all) => all.images(message).and_then(|images| {
                let replaces = |table| replaced.contains(&table);
                replicate::replace_rows(&mut database, images, replaces, &mut uuids)
            }),
            Rows::Images(images) => replicate::apply_images(&mut database, images, &mut uuids),
            Rows::Edits(_) => unreachable!("a backup asks by the oldest method"),
        };
        let result = changed.map(|delta| {
            let (mut bytes, store) = (Vec::new(), database.store());
            let written =
                standalone::write_transaction_as(style, &mut bytes, &delta, store, date_ms, None);
            let record =
                written.map(|written| MadeRecord { bytes, record: record_of(written), date_ms });
            (delta, record)
        });
        Mirrored { database, result: Reading::Read { state, result } }
    }
}
