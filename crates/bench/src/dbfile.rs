//! Writes standalone database files, `ovsdb(5)`: `OVSDB JSON LENGTH SHA1`, a line of JSON.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::Error;

/// Takes in a record's bytes only to count and hash them.
struct Measure {
    length: usize,
    hash: Sha1,
}

impl Write for Measure {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.length += buf.len();
        self.hash.update(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes one record. `body` is called twice and must write the same JSON text both times: the
/// header needs the length and the hash before the first byte, and the text may not fit memory.
pub(crate) fn record(
    out: &mut dyn Write,
    body: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<usize> {
    let mut measure = Measure { length: 0, hash: Sha1::new() };
    body(&mut measure)?;
    measure.write_all(b"\n")?;
    let mut hex = String::with_capacity(40);
    for byte in measure.hash.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    let header = format!("OVSDB JSON {} {hex}\n", measure.length);
    out.write_all(header.as_bytes())?;
    body(out)?;
    out.write_all(b"\n")?;
    Ok(header.len() + measure.length)
}

/// Reads a schema; `hint` says where one usually comes from.
pub(crate) fn read_schema(path: &Path, hint: &str) -> Result<Value, Error> {
    let text = fs::read(path).map_err(|e| {
        Error::Io(format!("reading the schema {} ({hint}, or give --schema)", path.display()), e)
    })?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::Check(format!("{} is not JSON: {e}", path.display())))
}

/// Creates the file of an empty database.
pub(crate) fn create(path: &Path, schema: &Value) -> Result<(), Error> {
    let mut bytes = Vec::new();
    let text = schema.to_string();
    record(&mut bytes, &mut |out| out.write_all(text.as_bytes()))?;
    fs::write(path, bytes).map_err(|e| Error::io("writing", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_states_its_length_and_hash() {
        let mut out = Vec::new();
        let size = record(&mut out, &mut |out| out.write_all(b"{}")).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "OVSDB JSON 3 5f36b2ea290645ee34d943220a14b54ee5ea5be5\n{}\n");
        assert_eq!(size, text.len());
    }
}
