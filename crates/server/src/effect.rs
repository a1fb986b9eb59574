//! Everything the server core asks of the shell: one closed enum, and the ordering duty of each.
//!
//! Effects are executed in the order in which they are polled. The core emits a `Send` only when
//! the commit position it was computed at has been written (the `Appended` event has come).

use std::sync::Arc;

use weir_data::store::Snapshot;
use weir_data::{Schema, Uuid};
use weir_history::Image;

use crate::ids::{Bytes, CommandId, DbId, LinkId, PeerPortId, RemoteId, SessionId, WorkId};
use crate::work::{Asker, Load, Search, Word, Work};

/// Severity of a log line, as vlog(8) names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `emer`.
    Emergency,
    /// `err`.
    Error,
    /// `warn`.
    Warning,
    /// `info`.
    Info,
    /// `dbg`.
    Debug,
}

impl From<weir_upstream::Level> for Level {
    fn from(level: weir_upstream::Level) -> Self {
        match level {
            weir_upstream::Level::Error => Self::Error,
            weir_upstream::Level::Warning => Self::Warning,
            weir_upstream::Level::Info => Self::Info,
            weir_upstream::Level::Debug => Self::Debug,
        }
    }
}

/// How a remote treats its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Inactivity probe interval in ms; `None` is the method's default, `Some(0)` is off.
    pub probe_ms: Option<u64>,
    /// Sessions may not write.
    pub read_only: bool,
    /// RBAC role, empty for none.
    pub role: String,
    /// IP DSCP value.
    pub dscp: Option<u8>,
    /// Longest pause between attempts to connect, in ms; `None` is the default.
    pub max_backoff_ms: Option<u64>,
}

/// What is said on a connection to another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// JSON-RPC: `Event::LinkMessage` for each message, `Event::LinkActivity` for less.
    Json,
    /// What only the core understands: `Event::LinkBytes` for what has come, however it is cut. No
    /// limit of clients counts for it.
    Bytes,
}

/// The options of TLS (ovsdb-server(1)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// `--private-key`
    pub private_key: Option<String>,
    /// `--certificate`
    pub certificate: Option<String>,
    /// `--ca-cert` or `--bootstrap-ca-cert`
    pub ca_cert: Option<String>,
    /// `ca_cert` was given as `--bootstrap-ca-cert`.
    pub bootstrap: bool,
    /// `--peer-ca-cert`
    pub peer_ca_cert: Option<String>,
    /// `--ssl-protocols`
    pub protocols: Option<String>,
    /// `--ssl-ciphers`
    pub ciphers: Option<String>,
    /// `--ssl-ciphersuites`
    pub ciphersuites: Option<String>,
    /// `--ssl-server-name`
    pub server_name: Option<String>,
}

impl TlsSettings {
    /// The values that may stand in a database.
    pub(crate) fn values(&self) -> [&Option<String>; 7] {
        [
            &self.private_key,
            &self.certificate,
            &self.ca_cert,
            &self.protocols,
            &self.ciphers,
            &self.ciphersuites,
            &self.server_name,
        ]
    }

    pub(crate) fn values_mut(&mut self) -> [&mut Option<String>; 7] {
        [
            &mut self.private_key,
            &mut self.certificate,
            &mut self.ca_cert,
            &mut self.protocols,
            &mut self.ciphers,
            &mut self.ciphersuites,
            &mut self.server_name,
        ]
    }
}

/// The place of a write among those to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step's number, never 0, greater than any before.
    pub number: u64,
    /// The step that the file must end with, 0 for one to which no step was written: if it does
    /// not, for a step before could not be written, this one fails and nothing is written. `None`
    /// where it does not matter.
    pub behind: Option<u64>,
}

/// Most bytes of one `Effect::ReadFile`.
pub const READ_FILE_BYTES_MAX: u64 = 1 << 20;

/// What the file of a member of a cluster begins with, before its snapshot.
#[derive(Clone, Debug)]
pub struct MemberHeader {
    /// The id of the server whose file this is.
    pub server: Uuid,
    /// The address at which other servers reach this one.
    pub address: String,
    /// The database's name.
    pub name: String,
    /// The cluster's id, once it is known.
    pub cluster: Option<Uuid>,
    /// What the snapshot has in it.
    pub mark: weir_cluster::Mark,
}

/// What the shell must do.
#[derive(Debug)]
pub enum Effect {
    /// Append these records to the database's file with one write(2), then fdatasync(2) if `sync`;
    /// answer with `Event::Appended` before anything else happens.
    Append {
        /// Which database.
        db: DbId,
        /// Whole records.
        bytes: Vec<u8>,
        /// Somebody asked for durability.
        sync: bool,
    },
    /// Append these records to the file with one write(2), now, and have a helper wait for
    /// fdatasync(2) if `sync`; answer with `Event::Persisted`, when it is over or, without `sync`,
    /// as soon as all steps before are answered. Effects behind this one do not wait for it: the
    /// core keeps back what depends on it. At most one fdatasync(2) a file is under way, and the
    /// next one is for all that was written meanwhile. Not to be mixed with `Append` in one file.
    Persist {
        /// Which database.
        db: DbId,
        /// The step's number, and what it follows.
        step: Step,
        /// Whole records.
        bytes: Bytes,
        /// Something depends on their being on the disk.
        sync: bool,
        /// Room is kept on the disk for such records, and others are refused rather than to take it.
        is_urgent: bool,
    },
    /// Read a piece of the file in a helper, as the file is now: what is appended does not matter,
    /// nor that another file takes its place meanwhile. Answer with `Event::FileRead`, those of one
    /// file in order.
    ReadFile {
        /// Which database.
        db: DbId,
        /// The number to answer with.
        id: WorkId,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// How long it is, at most [`READ_FILE_BYTES_MAX`].
        len: u64,
    },
    /// Queue `head` and then `body` on the outbox of every session in `to`. `head` may be empty.
    Send {
        /// The receivers.
        to: Vec<SessionId>,
        /// What differs between groups of receivers.
        head: Bytes,
        /// What they share.
        body: Bytes,
    },
    /// Answer with `Event::Drained` for each of these sessions when its outbox is empty, even if it
    /// was never blocked.
    TellDrained {
        /// Whose outboxes.
        to: Vec<SessionId>,
    },
    /// Answer with `Event::Outboxes` how far the bytes of these sessions have come.
    LookAtOutboxes {
        /// Whose outboxes.
        of: Vec<SessionId>,
    },
    /// Take no more messages from this session until `GoOnReading`.
    StopReading {
        /// From whom.
        session: SessionId,
    },
    /// Take messages again.
    GoOnReading {
        /// From whom.
        session: SessionId,
    },
    /// Run this elsewhere, urgent work first and otherwise each asker's in turn, and answer with
    /// `Event::WorkDone`.
    Work {
        /// The number to answer with.
        id: WorkId,
        /// Who waits for it.
        of: Asker,
        /// What to do.
        work: Work,
    },
    /// As `Effect::Work`, with the database's file up to its last good record to read from
    /// (`Search::in_file`), as it is now: appends go on meanwhile, and another file may take its
    /// place. At most one of them runs at once.
    Search {
        /// The number to answer with.
        id: WorkId,
        /// Who waits for it.
        of: SessionId,
        /// Which database.
        db: DbId,
        /// What to do with the file.
        search: Box<Search>,
    },
    /// Say this to a piece of work that has not been answered, as soon as it asks; what is to stop
    /// need not begin.
    Say {
        /// Which.
        id: WorkId,
        /// What.
        word: Word,
    },
    /// Flush the outbox as far as the peer takes it, then close. No `Closed` event follows.
    Disconnect {
        /// Whom.
        session: SessionId,
    },
    /// Open the listener; answer with `Event::Listening`.
    Listen {
        /// The remote's number.
        remote: RemoteId,
        /// `punix:FILE`, `ptcp:[PORT][:IP]`, `pssl:[PORT][:IP]`, `pfd:FD`.
        target: String,
        /// Socket options.
        options: RemoteOptions,
    },
    /// Connect; answer with `Event::Accepted` or `Event::ConnectFailed`.
    ConnectRemote {
        /// The remote's number.
        remote: RemoteId,
        /// `tcp:HOST[:PORT]`, `ssl:HOST[:PORT]`, `unix:FILE`.
        target: String,
        /// Socket options.
        options: RemoteOptions,
        /// How long it may take, in ms.
        patience_ms: u64,
    },
    /// The options of TLS, for the connections that come.
    Tls(Box<TlsSettings>),
    /// Close the listener, or give up connecting (its sessions get their own `Disconnect`).
    Unlisten {
        /// The remote's number.
        remote: RemoteId,
    },
    /// Begin to connect; answer with `Event::LinkUp` or `Event::LinkDown`. With `Framing::Bytes` the
    /// shell gives up after 5 s (`Connection timed out`); otherwise the core does, in its own time.
    Connect {
        /// The connection's number, below [`LinkId::ACCEPTED_MIN`].
        link: LinkId,
        /// `tcp:HOST:PORT`, `ssl:HOST:PORT`, `unix:FILE`.
        target: String,
        /// IP DSCP value.
        dscp: Option<u8>,
        /// What is said on it.
        framing: Framing,
    },
    /// Queue bytes on such a connection, or on one of `Event::LinkAccepted`: a whole message where
    /// it carries those. What is queued on a connection leaves in its order, all that a batch of
    /// effects has queued with one writev(2), before the shell waits for anything. Nothing happens
    /// if the connection has ended. One whose peer leaves too much untaken ends (`No buffer space
    /// available`).
    SendTo {
        /// Which.
        link: LinkId,
        /// The bytes; several connections may share them.
        bytes: Bytes,
    },
    /// Let at most so many bytes be queued on such a connection from now on: it ends when there are
    /// more.
    LimitLink {
        /// Which.
        link: LinkId,
        /// Bytes besides two pieces as long as the longest.
        bytes_max: usize,
    },
    /// Close it, behind what the socket takes at once of what is queued, or give up the attempt. No
    /// `LinkDown` event follows.
    CloseLink {
        /// Which.
        link: LinkId,
    },
    /// Open a listener for the other members of a cluster; answer with `Event::PeerPort`. Who
    /// connects is an `Event::LinkAccepted`, behind its handshake where TLS is spoken.
    ListenForPeers {
        /// The listener's number.
        port: PeerPortId,
        /// The member's own address, by which others connect: `tcp:IP:PORT`, `ssl:IP:PORT`,
        /// `unix:FILE`.
        address: String,
    },
    /// Close that listener. Connections that were accepted stay; none is told of any more, not even
    /// one that is at its handshake.
    CloseForPeers {
        /// Which.
        port: PeerPortId,
    },
    /// Read the configuration file; answer with `Event::ConfigurationRead`.
    ReadConfiguration {
        /// The file's absolute path.
        path: String,
    },
    /// Keep this for the child that takes this process's place after a crash (`--monitor`).
    SaveConfiguration {
        /// What `Config::saved` is to be then.
        bytes: Vec<u8>,
    },
    /// Lock, open and load a database file; answer with `Event::Opened`.
    Open {
        /// The number to answer with.
        db: DbId,
        /// The path as the user gave it, made absolute.
        path: String,
        /// Randomness for [`crate::storage::load::Loader`].
        seed: u64,
    },
    /// Close and unlock the file of a removed database.
    Close {
        /// Which database.
        db: DbId,
    },
    /// In a helper: write schema record and one snapshot record to `FILE.tmp` and fsync it; answer
    /// with `Event::CompactionWritten`. Appends to the old file go on meanwhile.
    Compact {
        /// Which database.
        db: DbId,
        /// The rows to write.
        snapshot: Snapshot,
        /// `_comment` of the snapshot record.
        comment: String,
        /// `_date` of the snapshot record, ms since 1970.
        date_ms: i64,
        /// The change log at the snapshot, for a side file that is written first. If that fails,
        /// for whatever reason, the log has a line, and the copy goes on without.
        history: Option<Box<Image>>,
        /// The file is that of a member of a cluster, and begins so.
        member: Option<Box<MemberHeader>>,
    },
    /// In a helper: append records to the `FILE.tmp` that `Event::CompactionWritten` has told of, and
    /// fsync it; answer with `Event::CompactionWritten` once more. Appends to the old file go on meanwhile.
    ExtendCopy {
        /// Which database.
        db: DbId,
        /// Whole records.
        records: Vec<u8>,
    },
    /// Append `tail` (the records written since the snapshot) to `FILE.tmp`, fsync, rename it over
    /// the file, fsync the directory, remove the side files of other copies, go on appending there;
    /// answer with `Event::CompactionFinished`.
    FinishCompaction {
        /// Which database.
        db: DbId,
        /// Whole records.
        tail: Vec<u8>,
        /// Everything must be on disk, the directory included, before the answer. It is also so if
        /// steps of `Effect::Persist` wait for that: the file then has them, and their answers come
        /// before.
        sync: bool,
        /// The place of this among the steps of the file, which then ends with this one; if it does
        /// not follow what is there, it fails, and the copy is kept for another time.
        step: Option<Step>,
    },
    /// Begin a file that comes from elsewhere: `FILE.tmp`, as `Effect::Compact` does, beginning with
    /// `head`. Another copy that is there, or that a helper is at, goes, and is not answered any more.
    /// This, and each of the next two, is
    /// done by a helper in their order, and answered with `Event::ReceivedWritten`.
    BeginReceived {
        /// Which database.
        db: DbId,
        /// The first bytes of the file.
        head: Vec<u8>,
    },
    /// Append to the file of `BeginReceived`.
    WriteReceived {
        /// Which database.
        db: DbId,
        /// How many bytes were written before, with those of `head`: a piece that leaves a gap, or
        /// comes twice, is refused.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Write over bytes of the file of `BeginReceived`: a length or hash, say, that is known at the
    /// end.
    PatchReceived {
        /// Which database.
        db: DbId,
        /// Where they begin; all that is written over has been written before.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Wait until the file of `BeginReceived` is on the disk, in a helper; answer with
    /// `Event::ReceivedSynced`. Then `FinishCompaction` may put it in the file's place, and nothing
    /// more is written to it but by that.
    SyncReceived {
        /// Which database.
        db: DbId,
    },
    /// Hand work to a helper, as `Effect::Work` does, with the file to read: the one that
    /// `Event::ReceivedSynced` has told of, or else the file itself.
    Load {
        /// Which work.
        id: WorkId,
        /// Which database.
        db: DbId,
        /// Whether it is the file that was received.
        is_received: bool,
        /// The work.
        load: Box<Load>,
    },
    /// In a helper, those of one file in order: put this into the file beside the database's that
    /// says which keys are declared, or remove that; then fsync it and its directory. Answer with
    /// `Event::KeysKept`.
    KeepKeys {
        /// Which database.
        db: DbId,
        /// What the file is to have in it; `None` for no file.
        text: Option<Vec<u8>>,
    },
    /// Remove `FILE.tmp` and its side file: what was written there is not to take the file's place.
    /// One that is still being received, or that a helper is at, goes as well, and is not answered
    /// any more.
    DiscardCopy {
        /// Which database.
        db: DbId,
    },
    /// In a helper: convert the rows to another schema and write the result to `FILE.tmp` as
    /// `Effect::Compact` does; answer with `Event::Converted`. `Effect::FinishCompaction` puts it
    /// in the file's place.
    Convert {
        /// Which database.
        db: DbId,
        /// The rows to convert.
        snapshot: Box<Snapshot>,
        /// The schema to convert them to.
        schema: Arc<Schema>,
        /// `_comment` of the snapshot record.
        comment: String,
        /// `_date` of the snapshot record, ms since 1970.
        date_ms: i64,
        /// Randomness for UUIDs and hashes.
        seed: [u64; 4],
        /// The change log at the snapshot, under the old schema, as for `Effect::Compact`.
        history: Option<Box<Image>>,
    },
    /// End the process with these last words on standard error and in the log, behind all that was
    /// asked for before; nothing that comes after this is done (`cluster/failure-test`).
    Crash {
        /// The words.
        why: &'static str,
    },
    /// Give freed memory back to the system (`memory-trim-on-compaction`).
    TrimMemory,
    /// Answer an admin command.
    CommandReply {
        /// Which command.
        id: CommandId,
        /// Text for standard output, or for standard error and exit status 2.
        reply: Result<String, String>,
    },
    /// Write a log line.
    Log {
        /// vlog module, for example `jsonrpc` or `ovsdb_jsonrpc_server`.
        module: &'static str,
        /// Severity.
        level: Level,
        /// The text.
        text: String,
        /// The place in the program, if a peer can provoke the line at will: it is limited in rate.
        limit: Option<&'static str>,
    },
}

// Each is moved several times, and most are messages: what is long and rare goes into a box.
const _: () = assert!(size_of::<Effect>() <= 112, "an effect is moved without a call of memcpy");
