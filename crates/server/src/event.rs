//! Everything that can happen to the server core: one closed enum.
//!
//! The shell (`host`, later `sim`) turns readiness, clocks and finished jobs into events; the core
//! never looks at the outside itself.

use std::collections::BTreeMap;

use weir_engine::Converted;

pub use crate::ids::{
    Bytes, CommandId, DbId, LinkId, Now, PeerPortId, RemoteId, SessionId, SyncTime, WorkId,
};
use crate::storage::load::Loaded;
pub use crate::work::ConversionError;
use crate::work::Finished;

/// How the process and its loop are, for `weir/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStatus {
    /// Memory that it has, in bytes.
    pub resident_bytes: u64,
    /// Rounds of the loop since the start.
    pub rounds: u64,
    /// The longest round of the last minute, in microseconds.
    pub stall_us: u64,
    /// The longest round since the start, in microseconds.
    pub stall_ever_us: u64,
    /// Bytes that clients have not taken yet, of those that have not taken all.
    pub queued: BTreeMap<SessionId, u64>,
}

/// How far the bytes have come that were ever queued for a session, from the first one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outbox {
    /// So many were queued.
    pub queued: u64,
    /// At least so many of them are with the kernel.
    pub written: u64,
    /// At least so many have been acknowledged by the peer's kernel, or read from a unix socket.
    pub acknowledged: u64,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A client connected through `remote`; `name` is what logs call it (`unix#3`,
    /// `tcp:192.0.2.1:4711`).
    Accepted {
        /// The new session.
        session: SessionId,
        /// The listener it came through.
        remote: RemoteId,
        /// Name for logs.
        name: String,
        /// The common name of the certificate that it has shown over TLS.
        client: Option<String>,
    },
    /// One complete, framed (not yet validated) JSON-RPC message. The shell delivers at most one a
    /// session and round, and none while the session's outbox is not empty.
    Message {
        /// Who sent it.
        session: SessionId,
        /// The message text.
        bytes: Vec<u8>,
    },
    /// A message is too long to be kept, as far as it has come: the core logs it. The shell passes
    /// over the rest of it.
    TooLong {
        /// Who sends it.
        session: SessionId,
        /// How much of it has come.
        bytes: u64,
    },
    /// The message that was too long has ended. It counts as a message.
    Refused {
        /// Who sent it.
        session: SessionId,
        /// The message's own members; what was nested in them is missing.
        outline: Vec<u8>,
        /// As in [`Event::TooLong`].
        bytes: u64,
    },
    /// Some bytes of an incomplete message arrived: keeps the inactivity probe quiet.
    Activity {
        /// Who sent them.
        session: SessionId,
    },
    /// The byte stream is not JSON (framer error): the core logs it and disconnects.
    BadStream {
        /// Who sent it.
        session: SessionId,
        /// What the framer said.
        error: String,
    },
    /// The peer closed or the connection failed; nothing more is accepted for this session.
    Closed {
        /// Whose connection ended.
        session: SessionId,
        /// `Some(text)` for a failure, `None` for an orderly end of file.
        error: Option<String>,
    },
    /// Too much waits in the outbox: no monitor update is composed for this session until
    /// `Drained`.
    Blocked {
        /// Whose outbox.
        session: SessionId,
    },
    /// The outbox is empty again.
    Drained {
        /// Whose outbox.
        session: SessionId,
    },
    /// Result of `Effect::Append`, in the order of the effects. On `Err` nothing of the bytes is in
    /// the file any more.
    Appended {
        /// Which database.
        db: DbId,
        /// The failure as strerror(3) text.
        result: Result<(), String>,
    },
    /// Result of `Effect::Persist`, one for each, those of a file in the order of the effects. None
    /// comes behind `Effect::Close`.
    Persisted {
        /// Which database.
        db: DbId,
        /// Which step.
        step: u64,
        /// How long the fdatasync(2) took that was for it and all before it. Or the failure as
        /// strerror(3) text: nothing of the step is in the file or, behind `FileSuspect`, nobody
        /// knows.
        result: Result<SyncTime, String>,
    },
    /// The server is to end as somebody wants it (`exit` of ovs-appctl(8)): what must be done before is
    /// begun. It may end when [`Server::may_stop`](crate::Server::may_stop) says so.
    Stopping,
    /// Result of `Effect::ReadFile`, unless the file was closed meanwhile.
    FileRead {
        /// Which database.
        db: DbId,
        /// The number of the effect.
        id: WorkId,
        /// As many bytes as were asked for, or the failure as strerror(3) text (`Unexpected end of
        /// file` if the file has fewer).
        result: Result<Vec<u8>, String>,
    },
    /// fdatasync(2) has failed, right before the `Appended` or `Persisted` that says so. What was written before
    /// may be lost though the system shows it, so the file refuses appends until a compacted copy
    /// takes its place.
    FileSuspect {
        /// Which database.
        db: DbId,
    },
    /// Result of `Effect::Open`.
    Opened {
        /// The database number the core chose.
        db: DbId,
        /// The loaded database, or the reference's error text.
        result: Result<Box<Loaded>, String>,
    },
    /// The helper has written and synced the compacted copy of `Effect::Compact`, or what
    /// `Effect::ExtendCopy` appends to it, or failed.
    CompactionWritten {
        /// Which database.
        db: DbId,
        /// Size of the copy in bytes, or what failed.
        result: Result<u64, String>,
    },
    /// The compacted copy has taken the file's place (answer to `Effect::FinishCompaction`).
    CompactionFinished {
        /// Which database.
        db: DbId,
        /// New size of the file in bytes, or what failed (the old file is still in place).
        result: Result<u64, String>,
    },
    /// Result of `Effect::BeginReceived`, `WriteReceived` or `PatchReceived`, one for each, in their
    /// order.
    ReceivedWritten {
        /// Which database.
        db: DbId,
        /// How many bytes the file has now; behind a failure, what it had before.
        upto: u64,
        /// The failure as strerror(3) text; everything behind it fails alike.
        result: Result<(), String>,
    },
    /// Result of `Effect::SyncReceived`.
    ReceivedSynced {
        /// Which database.
        db: DbId,
        /// Size of the file in bytes, or what failed, now or before.
        result: Result<u64, String>,
    },
    /// Result of `Effect::KeepKeys`, one for each, in their order, unless the file was closed
    /// meanwhile.
    KeysKept {
        /// Which database.
        db: DbId,
        /// The failure as strerror(3) text: the file is as it was.
        result: Result<(), String>,
    },
    /// Result of `Effect::Convert`: the converted copy is written and synced.
    Converted {
        /// Which database.
        db: DbId,
        /// The database under the new schema, or why there is none.
        result: Result<Box<Converted>, ConversionError>,
    },
    /// Result of `Effect::Work`.
    WorkDone {
        /// Which piece of work.
        id: WorkId,
        /// What came out of it.
        finished: Box<Finished>,
    },
    /// Result of `Effect::Listen`.
    Listening {
        /// Which remote.
        remote: RemoteId,
        /// The bound TCP port if any, or the strerror(3) text of the failure (the shell retries by
        /// itself and reports again).
        result: Result<Option<u16>, String>,
    },
    /// The connection of `Effect::Connect` is open.
    LinkUp {
        /// Which.
        link: LinkId,
    },
    /// One complete, framed message has come on it.
    LinkMessage {
        /// Which.
        link: LinkId,
        /// The message text.
        bytes: Vec<u8>,
    },
    /// Some bytes of an incomplete message have come.
    LinkActivity {
        /// Which.
        link: LinkId,
    },
    /// Bytes have come on a connection with `Framing::Bytes` or one that was accepted, as they came,
    /// in their order: never empty, and at most 256 KiB a connection and round, but that what TLS
    /// has deciphered with it comes with it.
    LinkBytes {
        /// Which.
        link: LinkId,
        /// What has come.
        bytes: Vec<u8>,
    },
    /// Another server has connected to a port of `Effect::ListenForPeers`: the connection is open,
    /// as after `LinkUp`, and carries bytes.
    LinkAccepted {
        /// The port that it came through.
        port: PeerPortId,
        /// The number that the shell gives to the connection, from [`LinkId::ACCEPTED_MIN`] on.
        link: LinkId,
        /// Name for logs, as that of a client.
        name: String,
    },
    /// Result of `Effect::ListenForPeers`.
    PeerPort {
        /// Which port.
        port: PeerPortId,
        /// The failure as strerror(3) text, `Address family not supported by protocol` for an
        /// address that makes no sense (the log says what is wrong with it). The shell tries again
        /// by itself, and reports again when what comes of it changes.
        result: Result<(), String>,
    },
    /// The attempt failed, or the connection ended; nothing more is heard of this number.
    LinkDown {
        /// Which.
        link: LinkId,
        /// The failure as strerror(3) text, `None` for an orderly end of file.
        error: Option<String>,
    },
    /// Result of `Effect::ReadConfiguration`.
    ConfigurationRead {
        /// The file's bytes, or strerror(3) text.
        result: Result<Vec<u8>, String>,
    },
    /// `Effect::ConnectRemote` did not succeed.
    ConnectFailed {
        /// Which remote.
        remote: RemoteId,
        /// The strerror(3) text, or `None` if the time was over.
        error: Option<String>,
    },
    /// Result of `Effect::LookAtOutboxes`; a session that has ended is missing.
    Outboxes {
        /// How far each session's bytes have come.
        outboxes: Vec<(SessionId, Outbox)>,
    },
    /// What only the shell knows; told before each `weir/status`.
    HostStatus(Box<HostStatus>),
    /// Nobody has worked for a while: the core gives up what it has no use for.
    Idle,
    /// What is queued for clients, all together; told before each `memory/show`.
    Backlog {
        /// Bytes that they have not taken yet.
        bytes: usize,
        /// Bytes that other members of clusters have not taken yet, on all connections to them.
        peers: usize,
    },
    /// An admin command that the shell does not answer itself.
    Command {
        /// Echoed in `Effect::CommandReply`.
        id: CommandId,
        /// The command's name.
        name: String,
        /// The command's arguments.
        args: Vec<String>,
    },
}
