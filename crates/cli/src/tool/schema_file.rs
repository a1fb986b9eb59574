//! Schema files, in the words of the reference when something is wrong with them.

use std::path::Path;

use weir_data::schema::Schema;

use crate::program::{Failure, strerror};

/// Reads a schema file; errors as the reference words them.
pub(super) fn read(path: &Path) -> Result<Schema, Failure> {
    let name = path.display();
    let unreadable = |why: String| {
        Failure::new(format!("failed to read schema: \"{name}\" could not be read as JSON ({why})"))
    };
    let mut file = std::fs::File::open(path)
        .map_err(|error| unreadable(format!("error opening \"{name}\": {}", strerror(&error))))?;
    let mut bytes = vec![];
    std::io::Read::read_to_end(&mut file, &mut bytes)
        .map_err(|error| unreadable(format!("error reading JSON stream: {}", strerror(&error))))?;
    let text = weir_json::validate(&bytes).map_err(|error| unreadable(error.to_string()))?;
    Schema::parse(text).map_err(|error| {
        let (text, details) = (error.to_string(), error.details().unwrap_or_default());
        // What the error quotes stays in front, the file's name goes before the details.
        let quoted = text.strip_suffix(details).unwrap_or(&text);
        Failure::new(format!("{quoted}failed to parse \"{name}\" as ovsdb schema: {details}"))
    })
}
