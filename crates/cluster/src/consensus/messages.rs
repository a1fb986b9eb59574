//! Messages of the library to steps on the wire, and back.

use raft::prelude::{Message, MessageType};

use super::store::{Store, raft_entry};
use crate::entry::Content;
use crate::ids::Position;
use crate::wire::{FRAME_BYTES_MAX, Step, THINGS_MAX};

/// Most bytes of a step on the wire besides its entries.
const STEP_BYTES_MAX: usize = 1024;

/// Most bytes of an entry on the wire besides its content.
const ENTRY_BYTES_MAX: usize = 64;

/// A step that has entries.
pub(crate) const APPEND: u8 = 1;

/// An [`APPEND`] without entries that says how far all is committed, to who needs not answer: each
/// batch would have two answers from each member otherwise.
pub(crate) const COMMIT: u8 = 12;

/// A step that answers an [`APPEND`].
pub(crate) const APPEND_ANSWER: u8 = 2;

/// A step that asks for a vote.
pub(crate) const VOTE_REQUEST: u8 = 3;

/// A step by which a leader is heard of when it has nothing else to say.
pub(crate) const HEARTBEAT: u8 = 5;

/// A step that answers a [`HEARTBEAT`].
pub(crate) const HEARTBEAT_ANSWER: u8 = 6;

/// A step that makes its receiver campaign at once.
pub(crate) const TIMEOUT_NOW: u8 = 7;

/// A step that asks whether there would be a vote.
pub(crate) const PRE_VOTE_REQUEST: u8 = 10;

/// Steps that ask for votes, and those that ask whether there would be any.
pub(crate) const VOTES: [u8; 2] = [VOTE_REQUEST, PRE_VOTE_REQUEST];

/// A step that answers who asked for a vote.
pub(crate) const VOTE_ANSWER: u8 = 4;

/// What comes from a peer and goes to the library, with its number on the wire.
const KINDS: [(u8, MessageType); 10] = [
    (APPEND, MessageType::MsgAppend),
    (APPEND_ANSWER, MessageType::MsgAppendResponse),
    (VOTE_REQUEST, MessageType::MsgRequestVote),
    (VOTE_ANSWER, MessageType::MsgRequestVoteResponse),
    (HEARTBEAT, MessageType::MsgHeartbeat),
    (HEARTBEAT_ANSWER, MessageType::MsgHeartbeatResponse),
    (TIMEOUT_NOW, MessageType::MsgTimeoutNow),
    (PRE_VOTE_REQUEST, MessageType::MsgRequestPreVote),
    (11, MessageType::MsgRequestPreVoteResponse),
    (COMMIT, MessageType::MsgAppend),
];

/// Whether a message says nothing that must be on the disk first.
pub(super) fn is_free(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
    )
}

/// What is said on the wire for a message; `None` for a snapshot, which is sent otherwise.
pub(super) fn to_step(message: &Message, store: &Store) -> Option<Step> {
    let kind = KINDS.iter().find(|(_, kind)| *kind == message.get_msg_type())?;
    // Since the library made the message, its entries may have left the log or memory. A follower that is sent some
    // of them says so; one that is sent none is found out by its answer to the next heartbeat.
    let entries = message.entries.iter().map_while(|entry| {
        let at = Position { term: entry.term, index: entry.index };
        Some(crate::Entry { at, content: store.content(at)? })
    });
    let mut entries: Vec<crate::Entry> = entries.collect();
    entries.truncate(as_many_as_fit(entries.iter(), FRAME_BYTES_MAX));
    Some(Step {
        kind: kind.0,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        commit: message.commit,
        commit_term: message.commit_term,
        request_snapshot: message.request_snapshot,
        reject: message.reject,
        reject_hint: message.reject_hint,
        synced: 0,
        context: message.context.to_vec(),
        entries,
    })
}

/// How many of these a frame of so many bytes has room for, at least one, which is refused elsewhere if it is too long. The
/// library counts no texts, and finds out from the answer that the rest has not come.
pub(super) fn as_many_as_fit<'e>(
    entries: impl Iterator<Item = &'e crate::Entry>,
    frame_bytes: usize,
) -> usize {
    let mut room = frame_bytes.saturating_sub(STEP_BYTES_MAX);
    let mut taken = 0;
    for entry in entries {
        let bytes = entry.content.len() + ENTRY_BYTES_MAX;
        if taken > 0 && (bytes > room || taken as u64 == THINGS_MAX) {
            break;
        }
        room = room.saturating_sub(bytes);
        taken += 1;
    }
    taken
}

/// The message that a step says; `None` if no member says so.
pub(super) fn to_message(step: &Step) -> Option<Message> {
    let (_, kind) = KINDS.iter().find(|(number, _)| *number == step.kind)?;
    let has_entries = step.kind == APPEND;
    if !has_entries && !step.entries.is_empty() {
        return None;
    }
    // The library takes entries as they come.
    let mut before = Position { term: step.log_term, index: step.index };
    for entry in &step.entries {
        let follows = entry.at.index == before.index.checked_add(1)?
            && entry.at.term >= before.term.max(1)
            && entry.at.term <= step.term;
        if !follows {
            return None;
        }
        before = entry.at;
    }
    let mut message = Message {
        term: step.term,
        log_term: step.log_term,
        index: step.index,
        commit: step.commit,
        commit_term: step.commit_term,
        request_snapshot: step.request_snapshot,
        reject: step.reject,
        reject_hint: step.reject_hint,
        context: step.context.clone().into(),
        ..Message::default()
    };
    message.set_msg_type(*kind);
    let entries = step
        .entries
        .iter()
        .map(|entry| raft_entry(entry.at, matches!(entry.content, Content::Servers(_))));
    message.entries = entries.collect::<Vec<_>>().into();
    Some(message)
}

#[cfg(test)]
mod tests {
    use weir_data::Uuid;

    use super::*;

    #[test]
    fn a_frame_has_as_many_entries_as_fit() {
        let entry = |index| {
            let content = Content::Data { eid: Uuid::ZERO, text: vec![b' '; 936].into() };
            crate::Entry { at: Position { term: 1, index }, content }
        };
        let entries: Vec<crate::Entry> = (1..=3).map(entry).collect();
        let fit = |frame_bytes| as_many_as_fit(entries.iter(), frame_bytes);
        assert_eq!(fit(0), 1, "one goes, or none ever would");
        assert_eq!(fit(STEP_BYTES_MAX + 1999), 1);
        assert_eq!(fit(STEP_BYTES_MAX + 2000), 2);
        assert_eq!(fit(STEP_BYTES_MAX + 3000), 3);
    }
}
