//! The rows of a snapshot, handed out as they come, and none of them kept.
//!
//! A snapshot is what `ovsdb-client backup` and compactions write: a schema, and at most one record
//! of whole rows. Other files, and bad ones, are [`NotASnapshot`]: [`super::Replayer`] reads them,
//! and says what is wrong.

use std::sync::Arc;

use weir_data::{Row, Schema, TableId, Uuid};

use crate::record::{Magic, Piece, Reader};
use crate::standalone::rows::Rows;

/// The file is not a snapshot, or not a good one; what has been handed out means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASnapshot;

/// Takes a snapshot's file in pieces and gives out its rows.
#[derive(Debug)]
pub struct SnapshotRows {
    seed: u64,
    reader: Reader,
    schema: Option<Arc<Schema>>,
    /// From the first record on.
    rows: Option<Rows>,
    /// All rows so far: of equal keys the last one would count.
    seen: Vec<(TableId, Uuid)>,
    ended: bool,
}

impl SnapshotRows {
    /// A reader at the beginning of a file; `seed` is fresh randomness.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            reader: Reader::new(),
            schema: None,
            rows: None,
            seen: Vec::new(),
            ended: false,
        }
    }

    /// The schema of the first record, once that is here.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// Takes the next bytes of the file and calls `each` for the rows that they complete: all of a
    /// table, then all of the next one. Rows that come with the end of the schema wait for the next
    /// call, which may bring no bytes.
    ///
    /// # Errors
    /// It is not a snapshot.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(TableId, &Row),
    ) -> Result<(), NotASnapshot> {
        self.reader.feed(bytes);
        let Some(rows) = &mut self.rows else { return self.read_schema() };
        while let Some(Piece { body, end }) = self.reader.next_piece().map_err(|_| NotASnapshot)? {
            if self.ended {
                return Err(NotASnapshot);
            }
            rows.replay_piece(body).map_err(|_| NotASnapshot)?;
            if end.is_some() {
                self.ended = true;
            }
            for (table, row) in rows.take_new() {
                self.seen.push((table, row.uuid()));
                each(table, &row);
            }
        }
        Ok(())
    }

    /// The file has ended; `each` is called for what is left.
    ///
    /// # Errors
    /// It is not a snapshot.
    pub fn finish(mut self, each: &mut dyn FnMut(TableId, &Row)) -> Result<(), NotASnapshot> {
        self.feed(&[], each)?;
        self.reader.finish().map_err(|_| NotASnapshot)?;
        let mut rows = self.rows.ok_or(NotASnapshot)?;
        let mut seen = self.seen;
        if self.ended {
            for (table, row) in rows.end_pieces().map_err(|_| NotASnapshot)? {
                seen.push((table, row.uuid()));
                each(table, &row);
            }
        }
        seen.sort_unstable();
        let is_twice = seen.windows(2).any(|pair| pair.first() == pair.last());
        if is_twice { Err(NotASnapshot) } else { Ok(()) }
    }

    fn read_schema(&mut self) -> Result<(), NotASnapshot> {
        let record = self.reader.next_record().map_err(|_| NotASnapshot)?;
        let Some(record) = record else { return Ok(()) };
        let json = record.json().map_err(|_| NotASnapshot)?;
        let schema = Schema::parse(json).map_err(|_| NotASnapshot)?;
        if self.reader.magic() != Some(Magic::Standalone) {
            return Err(NotASnapshot);
        }
        self.schema = Some(Arc::new(schema.clone()));
        self.rows = Some(Rows::new(schema, self.seed, false));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::write_record;

    const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}},
        "U":{"columns":{"n":{"type":"integer"}}}}}"#;

    /// Table and number of each row, in order.
    fn rows(records: &[&str], piece: usize) -> Result<Vec<(usize, String)>, NotASnapshot> {
        let mut file = vec![];
        for record in records {
            write_record(&mut file, record.as_bytes());
        }
        let mut rows = SnapshotRows::new(1);
        let mut found = vec![];
        let mut each = |table: TableId, row: &Row| {
            let mut n = vec![];
            row.get(weir_data::ColumnId(2)).entries().for_each(|(n_, _)| n_.write(&mut n));
            found.push((table.index(), String::from_utf8_lossy(&n).into_owned()));
        };
        for piece in file.chunks(piece) {
            rows.feed(piece, &mut each)?;
        }
        rows.finish(&mut each)?;
        Ok(found)
    }

    fn row(number: u8, n: u8) -> String {
        format!(r#""1234567{number}-1234-1234-1234-123456789abc":{{"n":{n}}}"#)
    }

    #[test]
    fn every_row_comes_once_however_the_file_is_cut() {
        let record =
            format!(r#"{{"_date":1,"U":{{{}}},"T":{{{},{}}}}}"#, row(1, 7), row(1, 8), row(2, 9));
        let expected = vec![(1, "7".to_owned()), (0, "8".to_owned()), (0, "9".to_owned())];
        for piece in [1, 2, 7, 64, 1000] {
            assert_eq!(rows(&[SCHEMA, &record], piece), Ok(expected.clone()), "{piece}");
            assert_eq!(rows(&[SCHEMA], piece), Ok(vec![]));
        }
    }

    #[test]
    fn other_files_are_for_the_replayer() {
        let insert = format!(r#"{{"T":{{{}}}}}"#, row(1, 1));
        let twice = format!(r#"{{"T":{{{},{}}}}}"#, row(1, 1), row(1, 2));
        let delete = r#"{"T":{"12345671-1234-1234-1234-123456789abc":null}}"#;
        for records in [
            &[SCHEMA, &insert, &insert][..],
            &[SCHEMA, &twice],
            &[SCHEMA, delete],
            &[SCHEMA, r#"{"T":{}"#],
            &[SCHEMA, r#"{"Q":{}}"#],
            &[SCHEMA, "{}", "{}"],
            &["{}"],
            &[],
        ] {
            for piece in [3, 1000] {
                assert_eq!(rows(records, piece), Err(NotASnapshot), "{records:?}");
            }
        }
        let mut torn = vec![];
        write_record(&mut torn, SCHEMA.as_bytes());
        write_record(&mut torn, insert.as_bytes());
        let mut good = SnapshotRows::new(1);
        let damaged: Vec<u8> =
            torn.iter().map(|byte| if *byte == b'}' { b']' } else { *byte }).collect();
        assert!(good.feed(&torn[..torn.len() - 1], &mut |_, _| ()).is_ok());
        assert!(good.finish(&mut |_, _| ()).is_err());
        assert!(SnapshotRows::new(1).feed(&damaged, &mut |_, _| ()).is_err());
    }
}
