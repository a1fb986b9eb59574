//! What a file's first record tells: names, versions, checksums, and whether two schemas differ.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_data::Schema;
use weir_log::record::Magic;

use super::log_file::LogFile;
use super::options::Tool;
use super::schema_file;
use crate::program::{Failure, Outcome, say};

/// Exit status of an answer that is no.
const NO: u8 = 2;

/// The database of a command: its first argument, or the default.
pub(super) fn database(tool: &Tool, args: &[String]) -> PathBuf {
    args.first().map_or_else(|| tool.dirs.default_database(), PathBuf::from)
}

fn answer(text: &str) -> Outcome {
    say(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn verdict(holds: bool) -> Outcome {
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

fn schema_of_database(path: &Path) -> Result<Schema, Failure> {
    Ok(LogFile::open_with_schema(path)?.1)
}

/// Runs `db-name [DB]`.
pub(super) fn db_name(tool: &Tool, args: &[String]) -> Outcome {
    let path = database(tool, args);
    match LogFile::open(&path)? {
        (mut log, Magic::Standalone) => answer(&log.schema()?.name),
        (mut log, Magic::Clustered) => {
            answer(&super::cluster::header(&mut log, &path, |header| header.name)?)
        }
    }
}

/// Runs `db-version [DB]`.
pub(super) fn db_version(tool: &Tool, args: &[String]) -> Outcome {
    answer(&schema_of_database(&database(tool, args))?.version)
}

/// Runs `db-cksum [DB]`.
pub(super) fn db_cksum(tool: &Tool, args: &[String]) -> Outcome {
    answer(&schema_of_database(&database(tool, args))?.cksum)
}

/// Runs `db-is-standalone DB`.
pub(super) fn db_is_standalone(tool: &Tool, args: &[String]) -> Outcome {
    verdict(LogFile::open(&database(tool, args))?.1 == Magic::Standalone)
}

/// Runs `db-is-clustered DB`.
pub(super) fn db_is_clustered(tool: &Tool, args: &[String]) -> Outcome {
    verdict(LogFile::open(&database(tool, args))?.1 == Magic::Clustered)
}

/// Runs `schema-name [SCHEMA]`.
pub(super) fn schema_name(tool: &Tool, args: &[String]) -> Outcome {
    answer(&schema_file::read(&schema_path(tool, args.first()))?.name)
}

/// Runs `schema-version [SCHEMA]`.
pub(super) fn schema_version(tool: &Tool, args: &[String]) -> Outcome {
    answer(&schema_file::read(&schema_path(tool, args.first()))?.version)
}

/// Runs `schema-cksum [SCHEMA]`.
pub(super) fn schema_cksum(tool: &Tool, args: &[String]) -> Outcome {
    answer(&schema_file::read(&schema_path(tool, args.first()))?.cksum)
}

/// A schema named on the command line, or the default.
pub(super) fn schema_path(tool: &Tool, arg: Option<&String>) -> PathBuf {
    arg.map_or_else(|| tool.dirs.default_schema(), PathBuf::from)
}

/// Runs `needs-conversion [DB [SCHEMA]]`.
pub(super) fn needs_conversion(tool: &Tool, args: &[String]) -> Outcome {
    let path = schema_path(tool, args.get(1));
    let old = schema_of_database(&database(tool, args))?;
    let new = schema_file::read(&path)?;
    answer(if old == new { "no" } else { "yes" })
}

/// Runs `compare-versions A OP B`.
pub(super) fn compare_versions(_tool: &Tool, args: &[String]) -> Outcome {
    let [a, op, b] = args else { return Err(Failure::silent(1)) };
    let (a, b) = (version(a)?, version(b)?);
    verdict(match op.as_str() {
        "<" => a < b,
        "<=" => a <= b,
        "==" => a == b,
        ">=" => a >= b,
        ">" => a > b,
        "!=" => a != b,
        _ => return Err(Failure::new(format!("{op}: not a relational operator"))),
    })
}

/// Three numbers as sscanf(3) reads them by `%u.%u.%u`.
fn version(text: &str) -> Result<[u32; 3], Failure> {
    let number = |part: &str| {
        let part = part.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        let digits = part.strip_prefix(['+', '-']).unwrap_or(part);
        let all_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let wrap = |sum: u32, byte: u8| sum.wrapping_mul(10).wrapping_add(u32::from(byte - b'0'));
        let sum = all_digits.then(|| digits.bytes().fold(0, wrap));
        if part.starts_with('-') { sum.map(u32::wrapping_neg) } else { sum }
    };
    let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
    let parts = parts.and_then(|parts| <[u32; 3]>::try_from(parts).ok());
    let why = "not an OVSDB version number in format x.y.z";
    parts.ok_or_else(|| Failure::new(format!("{text}: {why}")))
}
