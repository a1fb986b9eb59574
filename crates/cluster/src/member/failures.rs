//! What operators have a member do wrong on purpose (`cluster/failure-test`): how a cluster takes it
//! can be seen before it happens by itself.

use weir_data::Uuid;

use super::Member;
use crate::consensus::{APPEND, APPEND_ANSWER, COMMIT, HEARTBEAT_ANSWER, TIMEOUT_NOW, VOTES};
use crate::effect::{Effect, Level};
use crate::wire::{Frame, Lane, Step};

/// A scenario of `cluster/failure-test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process ends before it sends entries.
    CrashBeforeAppend,
    /// The process ends when it has sent entries.
    CrashAfterAppend,
    /// The process ends when entries have come, before it keeps them.
    CrashAfterReceivingAppend,
    /// The process ends before it answers another member's request.
    CrashBeforeReply,
    /// The process ends when it has answered another member's request.
    CrashAfterReply,
    /// The process ends before it sends a request to the leader.
    CrashBeforeRequest,
    /// The process ends when it has sent a request to the leader.
    CrashAfterRequest,
    /// The process ends when a snapshot has taken its file's place, before it says so.
    CrashBeforeInstallReply,
    /// The member waits twice as long before it campaigns.
    DelayElection,
    /// The member campaigns, and asks nobody for a vote.
    NoVoteRequests,
    /// The member says nothing to its peers, and does not listen.
    StopRpc,
    /// The member campaigns now.
    ForceElection,
    /// The member hands leadership over now, or as soon as it has it.
    Transfer,
    /// The member hands leadership over when it has sent entries.
    TransferAfterAppend,
    /// The member hands leadership over when it has begun to take a server in.
    TransferAfterAdd,
}

impl Failure {
    const NAMES: [(&str, Self); 15] = [
        ("crash-before-sending-append-request", Self::CrashBeforeAppend),
        ("crash-after-sending-append-request", Self::CrashAfterAppend),
        ("crash-after-receiving-append-request-update", Self::CrashAfterReceivingAppend),
        ("crash-before-sending-execute-command-reply", Self::CrashBeforeReply),
        ("crash-after-sending-execute-command-reply", Self::CrashAfterReply),
        ("crash-before-sending-execute-command-request", Self::CrashBeforeRequest),
        ("crash-after-sending-execute-command-request", Self::CrashAfterRequest),
        ("crash-before-sending-install-snapshot-reply", Self::CrashBeforeInstallReply),
        ("delay-election", Self::DelayElection),
        ("dont-send-vote-request", Self::NoVoteRequests),
        ("stop-raft-rpc", Self::StopRpc),
        ("force-election", Self::ForceElection),
        ("transfer-leadership", Self::Transfer),
        ("transfer-leadership-after-sending-append-request", Self::TransferAfterAppend),
        ("transfer-leadership-after-starting-to-add", Self::TransferAfterAdd),
    ];

    /// The scenario of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, failure)| *failure)
    }

    /// What the process says as it ends, in the reference's words.
    fn last_words(self) -> &'static str {
        match self {
            Self::CrashBeforeAppend => "Raft test: crash before sending append_request.",
            Self::CrashAfterAppend => "Raft test: crash after sending append_request.",
            Self::CrashAfterReceivingAppend => {
                "Raft test: crash after receiving append_request with update."
            }
            Self::CrashBeforeReply => "Raft test: crash before sending execute_command_reply",
            Self::CrashAfterReply => "Raft test: crash after sending execute_command_reply.",
            Self::CrashBeforeRequest => "Raft test: crash before sending execute_command_request",
            Self::CrashAfterRequest => "Raft test: crash after sending execute_command_request",
            Self::CrashBeforeInstallReply => {
                "Raft test: crash before sending install_snapshot_reply"
            }
            _ => unreachable!("the process goes on in all other scenarios"),
        }
    }
}

impl Member {
    /// From now on this goes wrong, or nothing any more.
    pub fn fail(&mut self, now_us: u64, failure: Option<Failure>) {
        self.now_us = now_us;
        let was_deaf = self.is_failing(Failure::StopRpc);
        self.failure = failure;
        self.peers.is_mute = self.is_failing(Failure::StopRpc);
        if was_deaf && !self.peers.is_mute {
            self.connect_anew();
        }
        if self.node.is_leader() && self.take_failure(Failure::Transfer) {
            self.give_lead_away();
        }
        if self.take_failure(Failure::ForceElection) && !self.snapshots.is_installing() {
            self.node.campaign();
        }
        self.pump();
    }

    pub(super) fn is_failing(&self, failure: Failure) -> bool {
        self.failure == Some(failure)
    }

    /// Whether this is to go wrong; it does so once.
    pub(super) fn take_failure(&mut self, failure: Failure) -> bool {
        self.failure.take_if(|engaged| *engaged == failure).is_some()
    }

    /// The place where the process ends in this scenario; true if it does.
    pub(super) fn crash_if(&mut self, failure: Failure) -> bool {
        let is_it = self.is_failing(failure);
        if is_it {
            self.gather();
            self.effects.push_back(Effect::Crash { why: failure.last_words() });
        }
        is_it
    }

    /// Puts a step on its way.
    pub(super) fn say(&mut self, to: Uuid, mut step: Step) {
        let has_entries = step.kind == APPEND && !step.entries.is_empty();
        if has_entries && self.crash_if(Failure::CrashBeforeAppend) {
            return;
        }
        if VOTES.contains(&step.kind) && self.is_failing(Failure::NoVoteRequests) {
            return;
        }
        let is_of_log = matches!(step.kind, APPEND | COMMIT);
        let lane = if is_of_log { Lane::Log } else { Lane::Control };
        self.promises.made(&step);
        if matches!(step.kind, APPEND_ANSWER | HEARTBEAT_ANSWER) {
            // What a leader may count on is what a start finds in the file.
            step.commit = step.commit.min(self.steps.commit_on_disk());
        }
        if !self.peers.send(to, lane, &Frame::Step(step)) {
            self.node.unreachable(to);
        }
        if has_entries {
            self.crash_if(Failure::CrashAfterAppend);
            if self.take_failure(Failure::TransferAfterAppend) {
                self.give_lead_away();
            }
        }
    }

    /// Sends a request to the server of another member, as [`Member::send_reply`] sends its answer;
    /// what is sent comes in order. False if that member cannot be reached.
    pub fn send_request(&mut self, to: Uuid, body: Vec<u8>) -> bool {
        if self.crash_if(Failure::CrashBeforeRequest) {
            return false;
        }
        let has_left = self.send(to, body);
        self.crash_if(Failure::CrashAfterRequest);
        has_left
    }

    /// Sends the answer to a request to the server of another member; false if that cannot be
    /// reached.
    pub fn send_reply(&mut self, to: Uuid, body: Vec<u8>) -> bool {
        if self.crash_if(Failure::CrashBeforeReply) {
            return false;
        }
        let has_left = self.send(to, body);
        self.crash_if(Failure::CrashAfterReply);
        has_left
    }

    fn send(&mut self, to: Uuid, body: Vec<u8>) -> bool {
        let has_left = self.peers.send(to, Lane::Log, &Frame::Message(body));
        self.gather();
        has_left
    }

    /// Leads no more, though nobody may have all of the log: this one is to campaign at once, if there is anybody.
    pub(super) fn lead_no_more(&mut self, successor: Option<Uuid>) {
        if let Some(successor) = successor {
            let term = self.node.term();
            self.say(successor, Step { kind: TIMEOUT_NOW, term, ..Step::default() });
        }
        self.node.step_down();
    }

    /// Hands leadership over, if the member has it.
    /// True if there is somebody to take it.
    pub(super) fn give_lead_away(&mut self) -> bool {
        let Some(successor) = self.successor() else { return false };
        let text = format!("Transferring leadership to server {}.", self.nickname(successor));
        self.log(Level::Info, text);
        self.node.transfer(successor);
        true
    }
}
