//! `ovsdb-tool cluster-to-standalone`: the data of a cluster that is beyond help.
//!
//! 1. The records are read once to see which entries are still in the log: one whose index was
//!    there already replaced it and all behind it.
//! 2. They are read again, from the same file, and each entry's transaction becomes a record. Entries
//!    that were not known to be committed are among them: nobody else can tell any more.
//! 3. An entry that brings a schema ends what can be carried over as it stands: what was written so
//!    far is converted, and the log starts anew.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use weir_data::{Schema, UuidSource};
use weir_engine::Database;
use weir_json::Text;
use weir_log::clustered::{Data, Header, Kind, Record, State};
use weir_log::record::{Magic, write_record};
use weir_log::standalone::{Replayer, write_schema, write_snapshot};

use crate::program::{Failure, Outcome};
use crate::tool::create::io_error;
use crate::tool::database_file;
use crate::tool::log_file::LogFile;
use crate::tool::options::Tool;
use crate::tool::rewrite::random;

/// Runs `cluster-to-standalone DB CLUSTERDB`.
pub(in crate::tool) fn cluster_to_standalone(tool: &Tool, args: &[String]) -> Outcome {
    let [destination, source] = args else { return Err(Failure::silent(1)) };
    let (destination, source) = (Path::new(destination), Path::new(source));
    let log = match LogFile::open(source)? {
        (log, Magic::Clustered) => log,
        (_, Magic::Standalone) => {
            return Err(Failure::new("Database is not clustered db.\n"));
        }
    };
    database_file::create(destination, &carry_over(log)?)
        .map_err(|error| io_error(tool, destination, error))?;
    Ok(ExitCode::SUCCESS)
}

/// What a standalone database is to have of a cluster's file that has just been opened.
fn carry_over(mut log: LogFile) -> Result<Vec<u8>, Failure> {
    let mut entries = surviving_entries(&mut log)?.into_iter().peekable();
    let mut log = log.rewound()?;
    let mut content = Vec::new();
    let begun = log.next(|json| begin(json, &mut content))?;
    begun.unwrap_or(Ok(()))?;
    let mut number = 0_u64;
    // What a server that runs has written since is not looked at.
    while entries.peek().is_some()
        && let Some(appended) = log.next(|json| {
            number += 1;
            if entries.next_if_eq(&number).is_some() { append(json, &mut content) } else { Ok(()) }
        })?
    {
        appended?;
    }
    Ok(content)
}

/// Numbers of the records whose entries are in the log at its end, in order.
fn surviving_entries(log: &mut LogFile) -> Result<Vec<u64>, Failure> {
    let mut entries: Vec<(u64, u64)> = Vec::new();
    let mut number = 0_u64;
    log.next(|_| ())?;
    while let Some(index) = log.next(|json| match Record::parse(json) {
        Ok(Record { kind: Kind::Entry(entry), .. }) => Ok(Some(entry.index)),
        Ok(_) => Ok(None),
        Err(error) => Err(Failure::new(error.to_string())),
    })? {
        number += 1;
        if let Some(index) = index? {
            let kept = entries.partition_point(|(before, _)| *before < index);
            entries.truncate(kept);
            entries.push((index, number));
        }
    }
    Ok(entries.into_iter().map(|(_, number)| number).collect())
}

/// Begins the file with the header's snapshot.
fn begin(json: Text<'_>, content: &mut Vec<u8>) -> Result<(), Failure> {
    let header = Header::parse(json).map_err(|error| Failure::new(error.to_string()))?;
    let State::Joined { snapshot: Some(snapshot), .. } = header.state else { return Ok(()) };
    let data = Data::parse(snapshot.data)
        .ok_or_else(|| Failure::new("Incorrect raft header data array length"))?;
    let (Some(schema), Some(transaction)) = (data.schema, data.transaction) else {
        return Err(Failure::new("Invalid raft header data"));
    };
    write_record(content, &canonical(schema));
    write_record(content, &canonical(transaction));
    Ok(())
}

/// Appends an entry's transaction.
fn append(json: Text<'_>, content: &mut Vec<u8>) -> Result<(), Failure> {
    let record = Record::parse(json).map_err(|error| Failure::new(error.to_string()))?;
    let Kind::Entry(entry) = record.kind else { return Ok(()) };
    let Some((data, _)) = entry.data else { return Ok(()) };
    let data =
        Data::parse(data).ok_or_else(|| Failure::new("Incorrect raft record array length"))?;
    match (data.schema, data.transaction) {
        (None, None) => {}
        (None, Some(transaction)) => write_record(content, &canonical(transaction)),
        (Some(schema), Some(transaction)) => {
            content.clear();
            write_record(content, &canonical(schema));
            write_record(content, &canonical(transaction));
        }
        (Some(schema), None) => *content = convert(content, schema)?,
    }
    Ok(())
}

fn canonical(text: Text<'_>) -> Vec<u8> {
    let mut json = Vec::new();
    text.write(&mut json);
    json
}

/// Converts what was written so far to another schema.
fn convert(content: &[u8], schema: Text<'_>) -> Result<Vec<u8>, Failure> {
    let wrong = |error: weir_data::Error| Failure::new(error.to_string());
    let random = random()?;
    let schema = Arc::new(Schema::parse(schema).map_err(wrong)?);
    let mut replayer = Replayer::new("snapshot", random[0]);
    let failed = |error: &dyn std::fmt::Display| Failure::new(error.to_string());
    replayer.feed(content).map_err(|error| failed(&error))?;
    let loaded = replayer.finish().map_err(|error| failed(&error))?;
    if let Some(problem) = loaded.warning {
        return Err(Failure::new(problem));
    }
    let old = Database::from_store(loaded.store, random[0]).map_err(wrong)?.snapshot();
    let mut uuids = UuidSource::new(random);
    let new = weir_engine::convert(&old, schema, &mut uuids, random[0])
        .map_err(wrong)?
        .database
        .snapshot();
    let mut content = Vec::new();
    write_schema(&mut content, new.schema());
    let comment = format!("converted by ovsdb-tool {}", weir_host::version::OVS_VERSION);
    let mut sink = |bytes: &[u8]| {
        content.extend_from_slice(bytes);
        Ok::<(), Failure>(())
    };
    write_snapshot(&new, weir_host::wall_ms(), Some(&comment), &mut sink)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use weir_log::clustered::{Entry, Servers, Snapshot};

    use super::*;

    /// The file of a server whose snapshot ends with an entry, and the entries behind that: each
    /// inserts a row.
    fn write(path: &Path, snapshot: u64, last: u64) {
        const SCHEMA: &str = r#"{"name":"db","version":"1.0.0","tables":{"t":{"columns":
            {"n":{"type":"integer"}},"isRoot":true}}}"#;
        let row = |n: u64| format!(r#""{}":{{"n":{n}}}"#, UuidSource::new([n; 4]).next_uuid());
        let rows: Vec<String> = (1..=snapshot).map(row).collect();
        let data = format!(r#"[{SCHEMA},{{"t":{{{}}}}}]"#, rows.join(","));
        let data = weir_json::validate(data.as_bytes()).expect("JSON");
        let eid = UuidSource::new([7; 4]).next_uuid();
        let address = "unix:s".to_owned();
        let snapshot_of = Snapshot { index: snapshot, term: 1, eid, data, election_timer: None };
        let header = Header {
            server_id: eid,
            local_address: address.clone(),
            name: "db".to_owned(),
            cluster_id: Some(eid),
            state: State::Joined {
                servers: Servers::from([(eid, address)]),
                snapshot: Some(snapshot_of),
            },
        };
        let mut file = Vec::new();
        header.write(&mut file);
        for index in snapshot + 1..=last {
            let data = format!(r#"[null,{{"t":{{{}}}}}]"#, row(index));
            let data = weir_json::validate(data.as_bytes()).expect("JSON");
            let entry =
                Entry { index, servers: None, election_timer: None, data: Some((data, eid)) };
            Record { comment: None, term: 1, kind: Kind::Entry(entry) }.write(&mut file);
        }
        std::fs::write(path, file).expect("a file of the tests");
    }

    #[test]
    fn a_file_that_another_one_replaces_meanwhile_is_read_to_its_end() {
        let name = format!("weir-carried-over-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (path, compacted) = (folder.join("1.db"), folder.join("1.db.tmp"));
        write(&path, 1, 9);
        let mut log = LogFile::open_clustered(&path).expect("it is of a cluster");
        let undisturbed = carry_over(log).expect("it is good");

        log = LogFile::open_clustered(&path).expect("it is of a cluster");
        write(&compacted, 5, 12);
        std::fs::rename(&compacted, &path).expect("a new name");
        assert!(carry_over(log).expect("it is good") == undisturbed);
        assert_eq!(undisturbed.windows(6).filter(|word| word == b"OVSDB ").count(), 10);
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
