//! Database files as a test needs them: fresh ones without any tool's help, and damaged ones.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::client::Trouble;

/// One record of the log: header line, JSON, line feed.
pub fn record(json: &str) -> Vec<u8> {
    let body = format!("{json}\n");
    let hash: String =
        Sha1::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("OVSDB JSON {} {hash}\n{body}", body.len()).into_bytes()
}

/// Writes an empty standalone database.
///
/// # Errors
/// When the file cannot be written.
pub fn create(path: &Path, schema: &Value) -> Result<(), Trouble> {
    Ok(fs::write(path, record(&schema.to_string()))?)
}

/// The records of a database file: the JSON of each that is whole, in order.
///
/// # Errors
/// When the file cannot be read.
pub fn records(path: &Path) -> Result<Vec<Value>, Trouble> {
    let bytes = fs::read(path)?;
    let (mut found, mut rest) = (vec![], &bytes[..]);
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let header = String::from_utf8_lossy(&rest[..end]).into_owned();
        let len = header.split(' ').nth(2).and_then(|len| len.parse::<usize>().ok());
        let Some(body) = len.and_then(|len| rest.get(end + 1..end + 1 + len)) else { break };
        found.push(crate::client::parse(body)?);
        rest = &rest[end + 1 + body.len()..];
    }
    Ok(found)
}
