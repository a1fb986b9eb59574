//! The numbers by which core and shell speak of things, and the time of an event.

use std::sync::Arc;

use crate::once::CHANNELS_MAX;

/// A client connection, numbered by the shell below [`SessionId::CHANNELS_MIN`], never reused in a process; or, in
/// the core alone, a channel of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Above the number of the connection stands that of the channel and one, or zero.
const CHANNEL_SHIFT: u32 = 53;

impl SessionId {
    /// The first number that is not a connection's.
    pub const CHANNELS_MIN: u64 = 1 << CHANNEL_SHIFT;

    /// A channel of this connection, or of that which this channel is of.
    pub(crate) fn channel(self, number: u16) -> Self {
        assert!(number < CHANNELS_MAX, "channels are numbered below the bound");
        Self((u64::from(number) + 1) << CHANNEL_SHIFT | self.connection().0)
    }

    pub(crate) fn is_channel(self) -> bool {
        self.0 >= Self::CHANNELS_MIN
    }

    /// The connection itself: what is sent to a channel is sent there.
    pub(crate) fn connection(self) -> Self {
        Self(self.0 & (Self::CHANNELS_MIN - 1))
    }
}

/// A configured remote (listener), numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemoteId(pub u64);

/// An open database, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DbId(pub u64);

/// A connection to another server, never reused in a process. The core numbers those that it asks
/// for, each attempt anew and below [`LinkId::ACCEPTED_MIN`]; the shell numbers those that peers
/// have made, from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

impl LinkId {
    /// The first number of the shell's range, which is told by the top bit.
    pub const ACCEPTED_MIN: u64 = 1 << 63;

    /// Whether a peer has made the connection.
    pub fn is_accepted(self) -> bool {
        self.0 >= Self::ACCEPTED_MIN
    }
}

/// A listener for the other members of a cluster, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerPortId(pub u64);

/// An admin command in flight, numbered by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// A piece of work in flight, numbered by the core, never reused in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkId(pub u64);

/// How long fdatasync(2) took, in microseconds; 0 where none was needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncTime(pub u64);

/// One buffer shared by everybody it is sent to.
pub type Bytes = Arc<Vec<u8>>;

/// Monotonic and wall time of a round; the wall clock dates log records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a clock that never steps back.
    pub monotonic_us: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub wall_ms: i64,
}

/// The earliest of these moments; `None`, and `u64::MAX`, are never. Every round asks this.
#[inline]
pub(crate) fn earliest<const N: usize>(moments: [Option<u64>; N]) -> Option<u64> {
    let first = moments.map(|at| at.unwrap_or(u64::MAX)).into_iter().fold(u64::MAX, u64::min);
    (first < u64::MAX).then_some(first)
}

/// The place of a request for others (leaders of clusters, sources of relays) among those of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);
