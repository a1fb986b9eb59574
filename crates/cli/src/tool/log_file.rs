//! A database file that is read record by record, without a lock.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use weir_data::Schema;
use weir_json::Text;
use weir_log::record::{Error, Magic, Reader, Record};

use crate::program::{Failure, strerror};

/// Bytes of the first read: most schemas are shorter.
const FIRST_READ_BYTES: usize = 64 << 10;
/// Bytes of each further read.
const READ_BYTES: usize = 1 << 20;

/// A file being read; messages name it as the user did.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    reader: Reader,
    buffer: Vec<u8>,
    is_end: bool,
}

impl LogFile {
    /// Opens a file and finds out what kind of log it is.
    pub(super) fn open(path: &Path) -> Result<(Self, Magic), Failure> {
        let opened = File::open(path);
        let file = opened.map_err(|error| Self::io(path, "open failed", &error))?;
        let (reader, buffer) = (Reader::new(), vec![0; FIRST_READ_BYTES]);
        let mut log = Self { path: path.to_owned(), file, reader, buffer, is_end: false };
        log.read()?;
        loop {
            // A torn record still has a header.
            if let Err(error) = log.reader.peek() {
                return Err(log.failure(&error));
            }
            if let Some(magic) = log.reader.magic() {
                return Ok((log, magic));
            }
            if log.is_end {
                let error = std::mem::take(&mut log.reader).finish().err();
                return Err(log.failure(&error.unwrap_or(Error::Unidentified)));
            }
            log.read()?;
        }
    }

    /// Opens a standalone database.
    pub(super) fn open_standalone(path: &Path) -> Result<Self, Failure> {
        match Self::open(path)? {
            (log, Magic::Standalone) => Ok(log),
            (_, Magic::Clustered) => {
                let path = path.display();
                let text = "cannot apply this operation to clustered database file";
                Err(Failure::new(format!("ovsdb error: {path}: {text}")))
            }
        }
    }

    /// Opens one server's part of a clustered database.
    pub(super) fn open_clustered(path: &Path) -> Result<Self, Failure> {
        match Self::open(path)? {
            (log, Magic::Clustered) => Ok(log),
            (_, Magic::Standalone) => {
                Err(Failure::new(format!("{}: not a clustered database", path.display())))
            }
        }
    }

    /// Opens a standalone database and reads its schema.
    pub(super) fn open_with_schema(path: &Path) -> Result<(Self, Schema), Failure> {
        let mut log = Self::open_standalone(path)?;
        let schema = log.schema()?;
        Ok((log, schema))
    }

    /// The first record of a standalone database.
    pub(super) fn schema(&mut self) -> Result<Schema, Failure> {
        match self.next(|json| Schema::parse(json).map_err(|error| error.to_string()))? {
            Some(schema) => schema.map_err(Failure::new),
            None => Err(Failure::new(format!("{}: file has no schema", self.path.display()))),
        }
    }

    /// Gives the next record's object to `take`; `None` at the end of the file.
    pub(super) fn next<T>(
        &mut self,
        take: impl FnOnce(Text<'_>) -> T,
    ) -> Result<Option<T>, Failure> {
        let mut take = Some(take);
        loop {
            let mut use_record = |record: Record<'_>| {
                let json = record.json()?;
                Ok(take.take().map(|take| take(json)))
            };
            let result = match self.reader.next_record() {
                Ok(Some(record)) => use_record(record),
                Ok(None) if self.is_end => std::mem::take(&mut self.reader).finish().map(|()| None),
                Ok(None) => {
                    self.read()?;
                    continue;
                }
                Err(error) => Err(error),
            };
            return result.map_err(|error| self.failure(&error));
        }
    }

    /// Reads this open file from its beginning once more, whatever file has its name by now: a server that runs puts
    /// another one there when it compacts its database.
    pub(super) fn rewound(self) -> Result<Self, Failure> {
        let Self { path, mut file, buffer, .. } = self;
        file.rewind().map_err(|error| Self::io(&path, "read error", &error))?;
        Ok(Self { path, file, reader: Reader::new(), buffer, is_end: false })
    }

    /// The file itself, for who reads it in another way.
    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Where the next record begins, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// The file's length in bytes, if the system knows it.
    pub(super) fn length(&self) -> Option<u64> {
        self.file.metadata().ok().map(|metadata| metadata.len())
    }

    /// The bytes of the whole file go to `take`, from the beginning, with how many have been read;
    /// it answers where to go on, if not behind them.
    pub(super) fn replay(
        self,
        mut take: impl FnMut(&[u8], u64) -> Result<Option<u64>, Failure>,
    ) -> Result<(), Failure> {
        let Self { path, mut file, mut buffer, .. } = self;
        let failed = |error: io::Error| Self::io(&path, "read error", &error);
        file.rewind().map_err(failed)?;
        buffer.resize(READ_BYTES, 0);
        let mut done = 0;
        loop {
            let count = read(&mut file, &mut buffer).map_err(failed)?;
            if count == 0 {
                return Ok(());
            }
            done += count as u64;
            if let Some(offset) = take(buffer.get(..count).unwrap_or_default(), done)? {
                file.seek(SeekFrom::Start(offset)).map_err(failed)?;
                done = offset;
            }
        }
    }

    fn read(&mut self) -> Result<(), Failure> {
        match read(&mut self.file, &mut self.buffer) {
            Ok(count) => {
                self.is_end = count == 0;
                self.reader.feed(self.buffer.get(..count).unwrap_or_default());
                self.buffer.resize(READ_BYTES, 0);
                Ok(())
            }
            Err(error) => Err(Self::io(&self.path, "read error", &error)),
        }
    }

    fn failure(&self, error: &Error) -> Failure {
        Failure::new(error.about(&self.path.display().to_string()).to_string())
    }

    fn io(path: &Path, what: &str, error: &io::Error) -> Failure {
        Failure::new(format!("I/O error: {}: {what} ({})", path.display(), strerror(error)))
    }
}

fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
