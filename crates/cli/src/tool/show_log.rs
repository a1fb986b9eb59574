//! `ovsdb-tool show-log`: the records of a file, for people.
//!
//! Records are printed as they are read, so that what precedes a bad one is seen.

pub(super) mod changes;
mod value;

use std::io::{StdoutLock, Write};
use std::process::ExitCode;

use weir_data::Schema;
use weir_json::{Kind, Text};
use weir_log::record::Magic;

use self::changes::Changes;
use super::log_file::LogFile;
use super::options::Tool;
use super::queries;
use crate::program::{Failure, Outcome, strerror};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// Dates below are seconds, all others milliseconds: files of OVS before 2.4 have seconds.
const SECONDS_END: i64 = i32::MAX as i64;

/// Runs `show-log [DB]`.
pub(super) fn show_log(tool: &Tool, args: &[String]) -> Outcome {
    let path = queries::database(tool, args);
    let mut out = Output { out: std::io::stdout().lock(), buffer: Vec::new() };
    let shown = match LogFile::open(&path)? {
        (log, Magic::Standalone) => standalone(log, tool.more, &mut out),
        (log, Magic::Clustered) => super::cluster::show::show(log, tool.more, &mut out),
    };
    out.flush()?;
    shown?;
    Ok(ExitCode::SUCCESS)
}

/// Standard output; whoever reads it may go away.
pub(super) struct Output<'o> {
    out: StdoutLock<'o>,
    /// What is written next.
    pub(super) buffer: Vec<u8>,
}

impl Output<'_> {
    /// Appends text.
    pub(super) fn push(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Writes when there is enough to write.
    pub(super) fn flow(&mut self) -> Result<(), Failure> {
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.buffer.clear();
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::silent(0)),
            Err(error) => {
                Err(Failure::new(format!("write to stdout failed ({})", strerror(&error))))
            }
            Ok(()) => Ok(()),
        }
    }
}

fn standalone(mut log: LogFile, more: u8, out: &mut Output<'_>) -> Result<(), Failure> {
    let mut changes = Changes::new(more);
    let mut number = 0_u64;
    loop {
        let shown = log.next(|json| {
            out.push(&format!("record {number}:"));
            if number == 0 {
                return schema(json, &mut changes, out);
            }
            transaction(json, &mut changes, &mut out.buffer);
            out.push("\n");
            Ok(())
        })?;
        match shown {
            None => return Ok(()),
            Some(result) => result?,
        }
        number += 1;
        out.flow()?;
    }
}

/// Shows the first record of a standalone database, its schema.
fn schema(json: Text<'_>, changes: &mut Changes, out: &mut Output<'_>) -> Result<(), Failure> {
    let schema = Schema::parse(json).map_err(|error| Failure::new(error.to_string()))?;
    out.push(&format!(" {}\n\n", describe(&schema)));
    changes.set_schema(schema);
    Ok(())
}

/// One line about a schema.
pub(super) fn describe(schema: &Schema) -> String {
    let Schema { name, version, cksum, .. } = schema;
    format!("\"{name}\" schema, version=\"{version}\", cksum=\"{cksum}\"")
}

/// Appends the date, the comment and the changes of a transaction.
pub(super) fn transaction(json: Text<'_>, changes: &mut Changes, out: &mut Vec<u8>) {
    let Some(members) = json.object() else { return };
    if let Some(date) = members.get("_date").and_then(Text::integer) {
        let date = if date < SECONDS_END { date.saturating_mul(1000) } else { date };
        out.push(b' ');
        out.extend_from_slice(
            weir_host::vlog::format_date("%Y-%m-%d %H:%M:%S.###", date).as_bytes(),
        );
    }
    if let Some(comment) = members.get("_comment").and_then(Text::string) {
        out.extend_from_slice(b" \"");
        out.extend_from_slice(&comment);
        out.push(b'"');
    }
    let is_diff = members
        .get("_is_diff")
        .is_some_and(|value| value.kind() == Kind::Bool && value.bool() == Some(true));
    changes.show(&members, is_diff, out);
}
