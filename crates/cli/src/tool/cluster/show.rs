//! `ovsdb-tool show-log` of a clustered file.

use weir_data::Schema;
use weir_json::Text;
use weir_log::clustered::{Data, Entry, Header, Kind, Record, Servers, State};

use super::short;
use crate::program::Failure;
use crate::tool::log_file::LogFile;
use crate::tool::show_log::changes::Changes;
use crate::tool::show_log::{Output, describe, transaction};

/// Shows all records of a clustered database's file.
pub(in crate::tool) fn show(
    mut log: LogFile,
    more: u8,
    out: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut changes = Changes::new(more);
    let mut number = 0_u64;
    loop {
        let shown = log.next(|json| {
            out.push(&format!("record {number}:\n"));
            let show = if number == 0 { show_header } else { show_record };
            // What is wrong with a record does not keep the others from being shown.
            if let Err(failure) = show(json, &mut changes, &mut out.buffer) {
                out.push(&format!("{}\n", failure.text));
            }
            out.push("\n");
        })?;
        if shown.is_none() {
            return Ok(());
        }
        number += 1;
        out.flow()?;
    }
}

fn push(out: &mut Vec<u8>, line: &str) {
    out.extend_from_slice(line.as_bytes());
}

fn failure(error: &weir_data::Error) -> Failure {
    Failure::new(error.to_string())
}

fn show_header(json: Text<'_>, changes: &mut Changes, out: &mut Vec<u8>) -> Result<(), Failure> {
    let header = Header::parse(json).map_err(|error| failure(&error))?;
    // The closing quote is the reference's.
    push(out, &format!(" name: \"{}'\n", header.name));
    push(out, &format!(" local address: \"{}\"\n", header.local_address));
    push(out, &format!(" server_id: {}\n", short(header.server_id)));
    if let Some(id) = header.cluster_id {
        push(out, &format!(" cluster_id: {}\n", short(id)));
    }
    match &header.state {
        State::Joining { remotes } => {
            push(out, &format!(" remote_addresses: {}\n", remotes.join(" ")));
        }
        State::Joined { servers, snapshot } => {
            if let Some(snapshot) = snapshot {
                push(out, &format!(" prev_index: {}\n", snapshot.index));
                push(out, &format!(" prev_term: {}\n", snapshot.term));
                show_servers("prev_servers", servers, out);
                push(out, &format!(" prev_eid: {}\n", short(snapshot.eid)));
                show_data("prev_", snapshot.data, changes, out)?;
            }
        }
    }
    Ok(())
}

fn show_record(json: Text<'_>, changes: &mut Changes, out: &mut Vec<u8>) -> Result<(), Failure> {
    let Record { comment, term, kind } = Record::parse(json).map_err(|error| failure(&error))?;
    if let Some(comment) = comment {
        push(out, &format!(" comment: \"{comment}\"\n"));
    }
    if term != 0 {
        push(out, &format!(" term: {term}\n"));
    }
    match kind {
        Kind::Note(note) => push(out, &format!(" note: \"{note}\"\n")),
        Kind::CommitIndex(index) => push(out, &format!(" commit_index: {index}\n")),
        Kind::Term => {}
        Kind::Leader(id) => push(out, &format!(" leader: {}\n", short(id))),
        Kind::Vote(id) => push(out, &format!(" vote: {}\n", short(id))),
        Kind::Entry(Entry { index, servers, data, .. }) => {
            push(out, &format!(" index: {index}\n"));
            if let Some(servers) = servers {
                show_servers("servers", &servers, out);
            }
            if let Some((data, eid)) = data {
                push(out, &format!(" eid: {}\n", short(eid)));
                show_data("", data, changes, out)?;
            }
        }
    }
    Ok(())
}

fn show_servers(name: &str, servers: &Servers, out: &mut Vec<u8>) {
    let server = |(id, address): (&_, &String)| format!("{}(\"{address}\")", short(*id));
    let servers: Vec<String> = servers.iter().map(server).collect();
    push(out, &format!(" {name}: {}\n", servers.join(", ")));
}

fn show_data(
    prefix: &str,
    data: Text<'_>,
    changes: &mut Changes,
    out: &mut Vec<u8>,
) -> Result<(), Failure> {
    let Some(data) = Data::parse(data) else {
        push(out, " ***invalid data***\n");
        return Ok(());
    };
    if let Some(schema) = data.schema {
        let schema = Schema::parse(schema).map_err(|error| failure(&error))?;
        push(out, &format!(" {prefix}schema: {}\n", describe(&schema).replacen(" schema", "", 1)));
        changes.set_schema(schema);
    }
    if let Some(json) = data.transaction {
        transaction(json, changes, out);
    }
    Ok(())
}
