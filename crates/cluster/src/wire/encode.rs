//! Frames to bytes.

use weir_data::Uuid;

use super::frame::{Begin, Frame, Step};
use crate::entry::{Content, Entry, Text};
use crate::ids::Position;

/// First bytes of a frame: its length and kind.
const HEAD: usize = 5;

/// Texts of entries from this length on, in bytes, are sent from where they are.
pub(crate) const SHARED_BYTES_MIN: usize = 64 << 10;

/// Texts that belong into what was written and are not copied there, each behind so many bytes of it.
pub(crate) type Shared = Vec<(usize, Text)>;

impl Frame {
    pub(super) const STEP: u8 = 1;
    pub(super) const BEGIN: u8 = 2;
    pub(super) const PIECE: u8 = 3;
    pub(super) const HAVE: u8 = 4;
    pub(super) const JOIN: u8 = 5;
    pub(super) const JOIN_REPLY: u8 = 6;
    pub(super) const REMOVE: u8 = 7;
    pub(super) const REMOVE_REPLY: u8 = 8;
    pub(super) const MESSAGE: u8 = 9;
    pub(super) const LOST: u8 = 10;

    /// Appends the frame to what is to be sent, but for long texts.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Shared {
        let (start, mut shared) = (out.len(), Shared::new());
        out.extend_from_slice(&[0; HEAD]);
        out[start + 4] = match self {
            Self::Step(step) => {
                write_step(out, &mut shared, step);
                Self::STEP
            }
            Self::Begin(begin) => {
                write_begin(out, begin);
                Self::BEGIN
            }
            Self::Piece { last, offset, bytes } => {
                position(out, *last);
                number(out, *offset);
                out.extend_from_slice(bytes);
                Self::PIECE
            }
            Self::Have { last, upto } => {
                position(out, *last);
                number(out, *upto);
                Self::HAVE
            }
            Self::Join { address, replaces } => {
                bytes(out, address.as_bytes());
                out.push(u8::from(replaces.is_some()));
                replaces.iter().for_each(|before| uuid(out, *before));
                Self::JOIN
            }
            Self::JoinReply { success, comment, remotes } => {
                out.push(u8::from(*success));
                bytes(out, comment.as_bytes());
                number(out, remotes.len() as u64);
                remotes.iter().for_each(|remote| bytes(out, remote.as_bytes()));
                Self::JOIN_REPLY
            }
            Self::Remove { server } => {
                uuid(out, *server);
                Self::REMOVE
            }
            Self::RemoveReply { server, success, comment } => {
                uuid(out, *server);
                out.push(u8::from(*success));
                bytes(out, comment.as_bytes());
                Self::REMOVE_REPLY
            }
            Self::Message(body) => {
                out.extend_from_slice(body);
                Self::MESSAGE
            }
            Self::Lost => Self::LOST,
        };
        let elsewhere: usize = shared.iter().map(|(_, text)| text.len()).sum();
        let len = out.len() - start - 4 + elsewhere;
        assert!(len <= super::FRAME_BYTES_MAX, "what is longer is refused before it comes here");
        let len = u32::try_from(len).expect("a frame's limit fits");
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        shared
    }
}

/// Cuts off what is behind the first of the texts that belong into the bytes; answers with the texts and that, in
/// order.
pub(crate) fn cut_off(bytes: &mut Vec<u8>, shared: Shared) -> Vec<Text> {
    let mut pieces = Vec::new();
    for (at, text) in shared.into_iter().rev() {
        let behind = bytes.split_off(at);
        pieces.extend((!behind.is_empty()).then(|| Text::new(behind)));
        pieces.push(text);
    }
    pieces.reverse();
    pieces
}

fn write_step(out: &mut Vec<u8>, shared: &mut Shared, step: &Step) {
    out.push(step.kind);
    out.push(u8::from(step.reject));
    let numbers = [
        step.term,
        step.log_term,
        step.index,
        step.commit,
        step.commit_term,
        step.request_snapshot,
        step.reject_hint,
        step.synced,
    ];
    numbers.into_iter().for_each(|n| number(out, n));
    bytes(out, &step.context);
    number(out, step.entries.len() as u64);
    step.entries.iter().for_each(|entry| write_entry(out, shared, entry));
}

/// What kind of content an entry has.
pub(super) mod content {
    pub(crate) const EMPTY: u8 = 0;
    pub(crate) const DATA: u8 = 1;
    pub(crate) const SERVERS: u8 = 2;
    pub(crate) const ELECTION_TIMER: u8 = 3;
}

fn write_entry(out: &mut Vec<u8>, shared: &mut Shared, entry: &Entry) {
    position(out, entry.at);
    match &entry.content {
        Content::Empty => out.push(content::EMPTY),
        Content::Data { eid, text } => {
            out.push(content::DATA);
            uuid(out, *eid);
            if text.len() < SHARED_BYTES_MIN {
                bytes(out, text);
            } else {
                number(out, text.len() as u64);
                shared.push((out.len(), text.clone()));
            }
        }
        Content::Servers(servers) => {
            out.push(content::SERVERS);
            write_servers(out, servers);
        }
        Content::ElectionTimer(ms) => {
            out.push(content::ELECTION_TIMER);
            number(out, *ms);
        }
    }
}

fn write_servers(out: &mut Vec<u8>, servers: &weir_log::clustered::Servers) {
    number(out, servers.len() as u64);
    for (id, address) in servers {
        uuid(out, *id);
        bytes(out, address.as_bytes());
    }
}

fn write_begin(out: &mut Vec<u8>, begin: &Begin) {
    number(out, begin.term);
    position(out, begin.last);
    uuid(out, begin.eid);
    write_servers(out, &begin.servers);
    number(out, begin.election_timer);
    number(out, begin.len);
}

fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn uuid(out: &mut Vec<u8>, uuid: Uuid) {
    out.extend_from_slice(&uuid.to_u128().to_be_bytes());
}

fn position(out: &mut Vec<u8>, at: Position) {
    number(out, at.term);
    number(out, at.index);
}
