//! Events of the core in a recording. What came of files and helpers has no content there: a replay
//! has its own.

use weir_server::event::{
    CommandId, ConversionError, DbId, Event, HostStatus, LinkId, Outbox, PeerPortId, RemoteId,
    SessionId, SyncTime,
};
use weir_server::work::WorkId;

use super::digest;
use super::fields::{Fields, Malformed, put_bytes, put_option, put_result, put_u64};

/// An event as a recording has it.
#[derive(Debug)]
pub(crate) enum Recorded {
    /// All of it.
    Whole(Event),
    /// A database was opened.
    Opened { db: DbId, result: Result<Beside, String> },
    /// A database was converted.
    Converted { db: DbId, result: Conversion },
    /// A piece of a file was read: its length and digest.
    FileRead { db: DbId, id: WorkId, result: Result<(u64, u64), String> },
    /// A piece of work was done, or stopped before its end.
    WorkDone { id: WorkId, is_cut: bool },
}

/// What was beside a database file when it was opened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// What the name of the side file with the change log ends in: what clients may resume from
    /// depends on it.
    pub(crate) history: Option<String>,
    /// The file that says which keys are declared: what a request costs depends on those.
    pub(crate) keys: Option<Vec<u8>>,
}

/// What came of a conversion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    Done,
    /// For its rows: a replay finds the same.
    Refused,
    /// For its file.
    Failed(String),
}

/// Appends an event.
#[allow(clippy::too_many_lines, reason = "a flat match")]
pub(super) fn encode(event: &Event, out: &mut Vec<u8>) {
    let begin = |out: &mut Vec<u8>, kind: u8, number: u64| {
        out.push(kind);
        put_u64(out, number);
    };
    match event {
        Event::Accepted { session, remote, name, client } => {
            begin(out, 0, session.0);
            put_u64(out, remote.0);
            put_text(out, name);
            put_maybe(out, client.as_ref());
        }
        Event::Message { session, bytes } => {
            begin(out, 1, session.0);
            put_bytes(out, bytes);
        }
        Event::Activity { session } => begin(out, 2, session.0),
        Event::BadStream { session, error } => {
            begin(out, 3, session.0);
            put_text(out, error);
        }
        Event::TooLong { session, bytes } => {
            begin(out, 24, session.0);
            put_u64(out, *bytes);
        }
        Event::Refused { session, outline, bytes } => {
            begin(out, 25, session.0);
            put_bytes(out, outline);
            put_u64(out, *bytes);
        }
        Event::Closed { session, error } => {
            begin(out, 4, session.0);
            put_maybe(out, error.as_ref());
        }
        Event::Blocked { session } => begin(out, 5, session.0),
        Event::Drained { session } => begin(out, 6, session.0),
        Event::Appended { db, result } => {
            begin(out, 7, db.0);
            put_result(out, result.as_ref(), |_, ()| {});
        }
        Event::Persisted { db, step, result } => {
            begin(out, 32, db.0);
            put_u64(out, *step);
            put_result(out, result.as_ref(), |out, SyncTime(us)| put_u64(out, *us));
        }
        Event::FileRead { db, id, result } => {
            begin(out, 33, db.0);
            put_u64(out, id.0);
            put_result(out, result.as_ref(), |out, bytes| {
                put_u64(out, bytes.len() as u64);
                put_u64(out, digest(bytes));
            });
        }
        Event::ReceivedWritten { db, upto, result } => {
            begin(out, 34, db.0);
            put_u64(out, *upto);
            put_result(out, result.as_ref(), |_, ()| {});
        }
        Event::ReceivedSynced { db, result } => {
            begin(out, 35, db.0);
            put_result(out, result.as_ref(), |out, size| put_u64(out, *size));
        }
        Event::FileSuspect { db } => begin(out, 8, db.0),
        Event::Opened { db, result } => {
            begin(out, 9, db.0);
            put_result(out, result.as_ref(), |out, loaded| {
                put_maybe(out, loaded.side_file().as_ref());
                put_option(out, loaded.key_file(), put_bytes);
            });
        }
        Event::KeysKept { db, result } => {
            begin(out, 37, db.0);
            put_result(out, result.as_ref(), |_, ()| {});
        }
        Event::CompactionWritten { db, result } => {
            begin(out, 10, db.0);
            put_result(out, result.as_ref(), |out, size| put_u64(out, *size));
        }
        Event::CompactionFinished { db, result } => {
            begin(out, 11, db.0);
            put_result(out, result.as_ref(), |out, size| put_u64(out, *size));
        }
        Event::Converted { db, result } => {
            begin(out, 12, db.0);
            match result {
                Ok(_) => out.push(0),
                Err(ConversionError::Refused(_)) => out.push(1),
                Err(ConversionError::Failed(error)) => {
                    out.push(2);
                    put_text(out, error);
                }
            }
        }
        Event::WorkDone { id, finished } if finished.is_cut() => begin(out, 26, id.0),
        Event::WorkDone { id, finished: _ } => begin(out, 13, id.0),
        Event::Listening { remote, result } => {
            begin(out, 14, remote.0);
            put_result(out, result.as_ref(), |out, port| {
                put_option(out, port.as_ref(), |out, port| put_u64(out, u64::from(*port)));
            });
        }
        Event::LinkUp { link } => begin(out, 15, link.0),
        Event::LinkMessage { link, bytes } => {
            begin(out, 16, link.0);
            put_bytes(out, bytes);
        }
        Event::LinkActivity { link } => begin(out, 17, link.0),
        Event::LinkDown { link, error } => {
            begin(out, 18, link.0);
            put_maybe(out, error.as_ref());
        }
        Event::LinkBytes { link, bytes } => {
            begin(out, 29, link.0);
            put_bytes(out, bytes);
        }
        Event::LinkAccepted { port, link, name } => {
            begin(out, 30, link.0);
            put_u64(out, port.0);
            put_text(out, name);
        }
        Event::PeerPort { port, result } => {
            begin(out, 31, port.0);
            put_result(out, result.as_ref(), |_, ()| {});
        }
        Event::ConfigurationRead { result } => {
            out.push(19);
            put_result(out, result.as_ref(), |out, bytes| put_bytes(out, bytes));
        }
        Event::ConnectFailed { remote, error } => {
            begin(out, 20, remote.0);
            put_maybe(out, error.as_ref());
        }
        Event::HostStatus(status) => {
            begin(out, 21, status.resident_bytes);
            put_u64(out, status.rounds);
            put_u64(out, status.stall_us);
            put_u64(out, status.stall_ever_us);
            put_u64(out, status.queued.len() as u64);
            for (session, bytes) in &status.queued {
                put_u64(out, session.0);
                put_u64(out, *bytes);
            }
        }
        Event::Outboxes { outboxes } => {
            begin(out, 28, outboxes.len() as u64);
            for (session, Outbox { queued, written, acknowledged }) in outboxes {
                let values = [session.0, *queued, *written, *acknowledged];
                values.iter().for_each(|value| put_u64(out, *value));
            }
        }
        Event::Idle => out.push(27),
        Event::Stopping => out.push(36),
        Event::Backlog { bytes, peers } => {
            begin(out, 22, *bytes as u64);
            put_u64(out, *peers as u64);
        }
        Event::Command { id, name, args } => {
            begin(out, 23, id.0);
            put_text(out, name);
            put_u64(out, args.len() as u64);
            args.iter().for_each(|arg| put_text(out, arg));
        }
    }
}

/// Reads an event.
pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Recorded, Malformed> {
    let kind = fields.byte()?;
    if let Some(recorded) = with_content_elsewhere(kind, fields)? {
        return Ok(recorded);
    }
    let event = match kind {
        0..=6 | 24 | 25 => of_session(kind, fields)?,
        7 => Event::Appended { db: DbId(fields.u64()?), result: fields.result(|_| Ok(()))? },
        8 => Event::FileSuspect { db: DbId(fields.u64()?) },
        37 => Event::KeysKept { db: DbId(fields.u64()?), result: fields.result(|_| Ok(()))? },
        34 => Event::ReceivedWritten {
            db: DbId(fields.u64()?),
            upto: fields.u64()?,
            result: fields.result(|_| Ok(()))?,
        },
        35 => {
            Event::ReceivedSynced { db: DbId(fields.u64()?), result: fields.result(Fields::u64)? }
        }
        32 => Event::Persisted {
            db: DbId(fields.u64()?),
            step: fields.u64()?,
            result: fields.result(|fields| Ok(SyncTime(fields.u64()?)))?,
        },
        10 => Event::CompactionWritten {
            db: DbId(fields.u64()?),
            result: fields.result(Fields::u64)?,
        },
        11 => Event::CompactionFinished {
            db: DbId(fields.u64()?),
            result: fields.result(Fields::u64)?,
        },
        14 => Event::Listening { remote: RemoteId(fields.u64()?), result: fields.result(port)? },
        15..=18 | 29 | 30 => of_link(kind, fields)?,
        31 => {
            Event::PeerPort { port: PeerPortId(fields.u64()?), result: fields.result(|_| Ok(()))? }
        }
        19 => Event::ConfigurationRead { result: fields.result(Fields::bytes)? },
        20 => Event::ConnectFailed { remote: RemoteId(fields.u64()?), error: maybe(fields)? },
        21 => Event::HostStatus(Box::new(host_status(fields)?)),
        22 => Event::Backlog { bytes: length(fields)?, peers: length(fields)? },
        28 => Event::Outboxes { outboxes: fields.list(outbox)? },
        27 => Event::Idle,
        36 => Event::Stopping,
        23 => Event::Command {
            id: CommandId(fields.u64()?),
            name: fields.text()?,
            args: fields.list(Fields::text)?,
        },
        _ => return Err(Malformed),
    };
    Ok(Recorded::Whole(event))
}

fn with_content_elsewhere(
    kind: u8,
    fields: &mut Fields<'_>,
) -> Result<Option<Recorded>, Malformed> {
    Ok(Some(match kind {
        9 => {
            let db = DbId(fields.u64()?);
            let result = fields.result(|fields| {
                let (history, keys) = (maybe(fields)?, fields.option(Fields::bytes)?);
                Ok(Beside { history, keys })
            })?;
            Recorded::Opened { db, result }
        }
        12 => {
            let db = DbId(fields.u64()?);
            let result = match fields.byte()? {
                0 => Conversion::Done,
                1 => Conversion::Refused,
                2 => Conversion::Failed(fields.text()?),
                _ => return Err(Malformed),
            };
            Recorded::Converted { db, result }
        }
        33 => Recorded::FileRead {
            db: DbId(fields.u64()?),
            id: WorkId(fields.u64()?),
            result: fields.result(|fields| Ok((fields.u64()?, fields.u64()?)))?,
        },
        13 | 26 => Recorded::WorkDone { id: WorkId(fields.u64()?), is_cut: kind == 26 },
        _ => return Ok(None),
    }))
}

fn of_session(kind: u8, fields: &mut Fields<'_>) -> Result<Event, Malformed> {
    let session = SessionId(fields.u64()?);
    Ok(match kind {
        0 => Event::Accepted {
            session,
            remote: RemoteId(fields.u64()?),
            name: fields.text()?,
            client: maybe(fields)?,
        },
        1 => Event::Message { session, bytes: fields.bytes()? },
        2 => Event::Activity { session },
        3 => Event::BadStream { session, error: fields.text()? },
        4 => Event::Closed { session, error: maybe(fields)? },
        5 => Event::Blocked { session },
        6 => Event::Drained { session },
        24 => Event::TooLong { session, bytes: fields.u64()? },
        25 => Event::Refused { session, outline: fields.bytes()?, bytes: fields.u64()? },
        _ => return Err(Malformed),
    })
}

fn of_link(kind: u8, fields: &mut Fields<'_>) -> Result<Event, Malformed> {
    let link = LinkId(fields.u64()?);
    Ok(match kind {
        15 => Event::LinkUp { link },
        16 => Event::LinkMessage { link, bytes: fields.bytes()? },
        17 => Event::LinkActivity { link },
        18 => Event::LinkDown { link, error: maybe(fields)? },
        29 => Event::LinkBytes { link, bytes: fields.bytes()? },
        30 => Event::LinkAccepted { port: PeerPortId(fields.u64()?), link, name: fields.text()? },
        _ => return Err(Malformed),
    })
}

fn host_status(fields: &mut Fields<'_>) -> Result<HostStatus, Malformed> {
    Ok(HostStatus {
        resident_bytes: fields.u64()?,
        rounds: fields.u64()?,
        stall_us: fields.u64()?,
        stall_ever_us: fields.u64()?,
        queued: fields
            .list(|fields| Ok((SessionId(fields.u64()?), fields.u64()?)))?
            .into_iter()
            .collect(),
    })
}

fn outbox(fields: &mut Fields<'_>) -> Result<(SessionId, Outbox), Malformed> {
    let session = SessionId(fields.u64()?);
    let (queued, written, acknowledged) = (fields.u64()?, fields.u64()?, fields.u64()?);
    Ok((session, Outbox { queued, written, acknowledged }))
}

fn length(fields: &mut Fields<'_>) -> Result<usize, Malformed> {
    usize::try_from(fields.u64()?).map_err(|_| Malformed)
}

fn port(fields: &mut Fields<'_>) -> Result<Option<u16>, Malformed> {
    fields.option(|fields| u16::try_from(fields.u64()?).map_err(|_| Malformed))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn put_maybe(out: &mut Vec<u8>, text: Option<&String>) {
    put_option(out, text, |out, text| put_text(out, text));
}

fn maybe(fields: &mut Fields<'_>) -> Result<Option<String>, Malformed> {
    fields.option(Fields::text)
}
