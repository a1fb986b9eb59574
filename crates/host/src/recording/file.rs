//! The form on disk: a line of text, then items, each behind its length and its digest.
//!
//! Each item is one write(2) before what it tells is acted upon, so that the recording of a crash
//! holds what caused it. Nothing is synced: a power failure may cost the end of it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weir_net::error::strerror;

/// The longest item, in bytes: a message of a server that is followed, and what is around it. At a
/// longer one a recording ends.
pub const ITEM_BYTES_MAX: u64 = (4 << 30) + (1 << 20);

/// The longest recording, in bytes; there it ends.
const RECORDING_BYTES_MAX: u64 = 64 << 30;

/// The first line, but for the program and the end of the line.
const TITLE: &str = "weir recording 2 ";

/// The part of it that all versions share.
const FAMILY: &str = "weir recording ";

/// Longest first line, in bytes.
const TITLE_BYTES_MAX: u64 = 80;

/// Permissions of a recording: it holds what clients have said.
const FILE_MODE: u32 = 0o600;

/// Why a recording cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// What the system says.
    Io(io::Error),
    /// Something else is in the file.
    Foreign,
    /// A later or earlier version has written it.
    Version,
    /// The item that begins at this offset is not what was written.
    Damaged(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "read failed ({})", strerror(error)),
            Self::Foreign => f.write_str("not a recording of this program"),
            Self::Version => f.write_str("a recording of another version of Weir"),
            Self::Damaged(offset) => write!(f, "damaged at offset {offset}"),
        }
    }
}

impl ReadError {
    /// The failure as an error of the system, for who knows only those.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            other => io::Error::other(other.to_string()),
        }
    }
}

/// The file of a program in a directory.
fn path_in(directory: &Path, program: &str) -> PathBuf {
    directory.join(format!("replay_{program}"))
}

/// FNV-1a: it finds what time and copying do to files.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Writes a recording.
pub struct Writer {
    file: File,
    path: PathBuf,
    length: u64,
    frame: Vec<u8>,
}

impl Writer {
    /// Begins the recording of a program. One that is there is kept as `NAME.old`: it may be that
    /// of the crash that has brought this process to life.
    ///
    /// # Errors
    /// The file, and what the system says.
    pub fn create(directory: &Path, program: &str) -> Result<Self, (PathBuf, io::Error)> {
        let path = path_in(directory, program);
        let _ = fs::rename(&path, path_in(directory, &format!("{program}.old")));
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(FILE_MODE).open(&path);
        let title = format!("{TITLE}{program}\n");
        let written = opened.and_then(|mut file| {
            file.write_all(title.as_bytes())?;
            Ok(file)
        });
        match written {
            Ok(file) => Ok(Self { file, path, length: title.len() as u64, frame: Vec::new() }),
            Err(error) => Err((path, error)),
        }
    }

    /// Appends an item.
    ///
    /// # Errors
    /// The text for the log; the recording ends before this item then.
    pub fn write(&mut self, item: &[u8]) -> Result<(), String> {
        let failed = |what: &str| format!("{}: {what}", self.path.display());
        let length = item.len() as u64;
        if length > ITEM_BYTES_MAX || self.length + length > RECORDING_BYTES_MAX {
            return Err(failed("a recording cannot be longer"));
        }
        self.frame.clear();
        self.frame.extend_from_slice(&length.to_le_bytes());
        self.frame.extend_from_slice(&digest(item).to_le_bytes());
        self.frame.extend_from_slice(item);
        if let Err(error) = self.file.write_all(&self.frame) {
            // Whoever reads it shall not meet half an item; if this fails too, it knows those.
            let _ = self.file.set_len(self.length);
            return Err(failed(&format!("write failed: {}", strerror(&error))));
        }
        self.length += self.frame.len() as u64;
        Ok(())
    }
}

/// Reads a recording.
pub struct Reader<R> {
    source: R,
    offset: u64,
}

impl Reader<BufReader<File>> {
    /// Opens the recording of a program; also where it is.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn open(directory: &Path, program: &str) -> Result<(Self, PathBuf), (PathBuf, ReadError)> {
        let path = path_in(directory, program);
        let opened = File::open(&path).map_err(ReadError::Io);
        match opened.and_then(|file| Self::new(BufReader::new(file), program)) {
            Ok(reader) => Ok((reader, path)),
            Err(error) => Err((path, error)),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// The recording is not one of this program.
    pub fn new(mut source: R, program: &str) -> Result<Self, ReadError> {
        let mut title = Vec::new();
        while title.last() != Some(&b'\n') {
            let mut byte = [0];
            let count = source.read(&mut byte).map_err(ReadError::Io)?;
            if count == 0 || title.len() as u64 > TITLE_BYTES_MAX {
                return Err(ReadError::Foreign);
            }
            title.extend_from_slice(&byte);
        }
        if title == format!("{TITLE}{program}\n").into_bytes() {
            return Ok(Self { source, offset: title.len() as u64 });
        }
        let is_ours = title.starts_with(FAMILY.as_bytes()) && !title.starts_with(TITLE.as_bytes());
        Err(if is_ours { ReadError::Version } else { ReadError::Foreign })
    }

    /// Where the next item begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next item; `None` at the end, also in the middle of an item, where a crash ended it.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn next_item(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let mut head = Vec::new();
        self.read(16, &mut head)?;
        let Some((length, expected)) = head.split_at_checked(8).and_then(|(length, expected)| {
            Some((
                u64::from_le_bytes(length.try_into().ok()?),
                u64::from_le_bytes(expected.try_into().ok()?),
            ))
        }) else {
            return Ok(None);
        };
        if length > ITEM_BYTES_MAX {
            return Err(ReadError::Damaged(self.offset));
        }
        // Grows with what is there: the length may be a lie.
        let mut item = Vec::new();
        self.read(length, &mut item)?;
        if (item.len() as u64) < length {
            return Ok(None);
        }
        if digest(&item) != expected {
            return Err(ReadError::Damaged(self.offset));
        }
        self.offset += 16 + length;
        Ok(Some(item))
    }

    fn read(&mut self, count: u64, out: &mut Vec<u8>) -> Result<(), ReadError> {
        self.source.by_ref().take(count).read_to_end(out).map_err(ReadError::Io)?;
        Ok(())
    }
}
