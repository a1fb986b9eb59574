//! What peers say, before the raft library hears it. The library trusts its peers: it ends the
//! process on some messages that no member sends, and does odd things on others.
//!
//! What a message contains was looked at when it was read from the wire; here is what it says to a
//! node as that is.

use raft::prelude::{Message, MessageType};
use raft::{Raft, StateRole};

use super::store::Store;

/// Why a message is not what a member says to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Odd {
    /// The message has no effect: it comes late, from a stranger, or ahead of what it answers.
    Ignored(String),
    /// No member says what the message says: who does is not listened to any more.
    Nonsense(String),
    /// The leader's log has another entry where one is committed here: what the cluster had promised is lost.
    Split { term: u64, why: String },
}

/// What people call a message, as the reference's log does.
fn name(kind: MessageType) -> &'static str {
    match kind {
        MessageType::MsgAppend => "append_request",
        MessageType::MsgAppendResponse => "append_reply",
        MessageType::MsgHeartbeat => "heartbeat",
        MessageType::MsgHeartbeatResponse => "heartbeat_reply",
        MessageType::MsgRequestVote => "vote_request",
        MessageType::MsgRequestVoteResponse => "vote_reply",
        MessageType::MsgRequestPreVote => "pre_vote_request",
        MessageType::MsgRequestPreVoteResponse => "pre_vote_reply",
        MessageType::MsgTimeoutNow => "become_leader",
        _ => "other",
    }
}

/// An older term: the library tells the sender the newer one, and does nothing else. Answers that come
/// late are nothing to speak of.
pub(super) fn stale(raft: &Raft<Store>, message: &Message) -> Option<String> {
    let (term, own) = (message.term, raft.term);
    let kind = message.get_msg_type();
    let name = name(kind);
    (term < own && !is_answer(kind))
        .then(|| format!("rejecting term {term} < current term {own} received in {name} message"))
}

/// Whether the node can take a message of its term or a newer one.
pub(super) fn check(raft: &Raft<Store>, message: &Message) -> Result<(), Odd> {
    let kind = message.get_msg_type();
    let nonsense = |why: &str| Err(Odd::Nonsense(format!("{} {why}", name(kind))));
    if message.term == 0 {
        return nonsense("without a term");
    }
    if message.request_snapshot != 0 {
        return nonsense("asks for a snapshot");
    }
    if message.term < raft.term {
        return Ok(());
    }
    match kind {
        MessageType::MsgAppend if message.index > 0 && message.log_term == 0 => {
            nonsense("does not say what it follows")
        }
        MessageType::MsgAppend if message.log_term > message.term => {
            nonsense("follows an entry of a later term")
        }
        MessageType::MsgAppend => check_append(raft, message),
        MessageType::MsgHeartbeat => check_heartbeat(raft, message),
        MessageType::MsgTimeoutNow => check_timeout_now(raft, message),
        _ if !is_answer(kind) => Ok(()),
        _ if raft.prs().get(message.from).is_none() => {
            Err(Odd::Ignored(format!("{} from unknown server", name(kind))))
        }
        MessageType::MsgAppendResponse => check_append_response(raft, message),
        // Who asked for it has all on the disk.
        MessageType::MsgRequestVoteResponse
            if raft.state == StateRole::Candidate && !is_persisted(raft) =>
        {
            Err(Odd::Ignored("vote_reply to no vote_request".into()))
        }
        _ => Ok(()),
    }
}

fn is_answer(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVoteResponse
    )
}

/// Whether all that the node has is on the disk: the library does not lead before.
pub(super) fn is_persisted(raft: &Raft<Store>) -> bool {
    raft.raft_log.persisted == raft.raft_log.last_index()
}

/// Whether who speaks as a leader can be that of its term.
pub(super) fn check_leader(raft: &Raft<Store>, from: u64, term: u64) -> Result<(), Odd> {
    let leader = raft.leader_id;
    if term == raft.term && leader != raft::INVALID_ID && leader != from {
        return Err(Odd::Ignored(format!("another leader in term {term}")));
    }
    Ok(())
}

/// Whether a leader's log has what is committed here, as far as it shows. The library does not look at the terms of
/// entries up to there, and answers that it has what the leader has.
fn check_append(raft: &Raft<Store>, message: &Message) -> Result<(), Odd> {
    check_leader(raft, message.from, message.term)?;
    let committed = raft.raft_log.committed;
    let follows = (message.index, message.log_term);
    let entries = message.entries.iter().map(|entry| (entry.index, entry.term));
    for (index, term) in std::iter::once(follows).chain(entries) {
        // It is 0 where the log does not reach back to.
        let own = raft.raft_log.term(index).unwrap_or(0);
        if index <= committed && own != 0 && own != term {
            let why = format!("entry {index} is of term {own} here, and of term {term} there");
            return Err(Odd::Split { term: message.term, why });
        }
    }
    Ok(())
}

fn check_heartbeat(raft: &Raft<Store>, message: &Message) -> Result<(), Odd> {
    check_leader(raft, message.from, message.term)?;
    let (commit, last) = (message.commit, raft.raft_log.last_index());
    if commit > last {
        return Err(Odd::Nonsense(format!(
            "entries up to {commit} are said to be here and committed, the log ends at {last}"
        )));
    }
    Ok(())
}

fn check_timeout_now(raft: &Raft<Store>, message: &Message) -> Result<(), Odd> {
    let is_of_leader = message.term == raft.term && message.from == raft.leader_id;
    if !is_of_leader || !is_persisted(raft) {
        return Err(Odd::Ignored("become_leader from a server that does not lead".into()));
    }
    Ok(())
}

fn check_append_response(raft: &Raft<Store>, message: &Message) -> Result<(), Odd> {
    let is_ours = message.term == raft.term && raft.state == StateRole::Leader;
    let last = raft.raft_log.last_index();
    if is_ours && (message.index > last || message.reject_hint > last) {
        return Err(Odd::Nonsense(format!("append_reply beyond the log's end at {last}")));
    }
    Ok(())
}
