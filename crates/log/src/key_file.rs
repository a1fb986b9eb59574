//! The file beside a database file that says which keys are declared for it
//! (`docs/decisions/018`): one object and a newline.
//!
//! ```text
//! {"database":"Net","format":1,"keys":{"Port":{"tag":"asc","type":"hash"}}}
//! ```
//!
//! The name binds it to its database: beside another one it says nothing. Keys are found by the
//! names of tables and columns, so it stays right whoever compacts, converts or restores the file.

use std::fmt;

use weir_data::DeclaredKeys;
use weir_json::object;

/// A longer file is none, in bytes.
pub const KEY_FILE_BYTES_MAX: usize = 1 << 20;

/// What the writer writes and the reader knows.
const FORMAT: i64 = 1;

/// Why a file says nothing of a database's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFileError {
    /// Nobody wrote a file like this.
    Malformed,
    /// The file is of a later format.
    Format,
    /// The file belongs to another database.
    Database,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is malformed",
            Self::Format => "it has a format of another version",
            Self::Database => "it belongs to another database",
        })
    }
}

impl std::error::Error for KeyFileError {}

/// What the file of a database has in it.
pub fn write(database: &str, keys: &DeclaredKeys) -> Vec<u8> {
    let members =
        [("database", database.into()), ("format", FORMAT.into()), ("keys", keys.to_value())];
    format!("{}\n", object(members)).into_bytes()
}

/// The keys that a file declares for a database.
///
/// # Errors
/// The file is not one for this database.
pub fn read(bytes: &[u8], database: &str) -> Result<DeclaredKeys, KeyFileError> {
    if bytes.len() > KEY_FILE_BYTES_MAX {
        return Err(KeyFileError::Malformed);
    }
    let text = weir_json::validate(bytes).map_err(|_| KeyFileError::Malformed)?;
    let members = text.object().ok_or(KeyFileError::Malformed)?;
    let format = members.get("format").and_then(weir_json::Text::integer);
    match format.ok_or(KeyFileError::Malformed)? {
        FORMAT => {}
        _ => return Err(KeyFileError::Format),
    }
    let name = members.get("database").and_then(|name| name.string());
    if name.as_deref().ok_or(KeyFileError::Malformed)? != database.as_bytes() {
        return Err(KeyFileError::Database);
    }
    members.get("keys").and_then(DeclaredKeys::parse).ok_or(KeyFileError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_data::KeyOrder;

    #[test]
    fn what_is_written_is_read_for_the_same_database_only() {
        let mut keys = DeclaredKeys::default();
        keys.declare("Port", "type", KeyOrder::Hash);
        keys.declare("Port", "tag", KeyOrder::Ascending);
        let bytes = write("Net", &keys);
        let text = "{\"database\":\"Net\",\"format\":1,\
                    \"keys\":{\"Port\":{\"tag\":\"asc\",\"type\":\"hash\"}}}\n";
        assert_eq!(String::from_utf8_lossy(&bytes), text);
        assert_eq!(read(&bytes, "Net"), Ok(keys));
        assert_eq!(read(&bytes, "Other"), Err(KeyFileError::Database));
    }

    #[test]
    fn no_bytes_are_taken_for_what_they_are_not() {
        let whole = write("Net", &DeclaredKeys::default());
        for end in 0..whole.len() - 1 {
            assert_eq!(read(&whole[..end], "Net"), Err(KeyFileError::Malformed), "{end}");
        }
        for (text, error) in [
            (r#"[]"#, KeyFileError::Malformed),
            (r#"{"database":"Net","format":2,"keys":{}}"#, KeyFileError::Format),
            (r#"{"database":1,"format":1,"keys":{}}"#, KeyFileError::Malformed),
            (r#"{"database":"Net","format":1,"keys":[]}"#, KeyFileError::Malformed),
        ] {
            assert_eq!(read(text.as_bytes(), "Net"), Err(error), "{text}");
        }
        assert_eq!(read(&vec![b' '; KEY_FILE_BYTES_MAX + 1], "Net"), Err(KeyFileError::Malformed));
    }
}
