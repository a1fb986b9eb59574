//! Requests on their way to the source, and its answers.

use std::collections::BTreeSet;

use weir_data::{Error, Schema, Uuid};
use weir_json::{Text, Value};
use weir_wire::Message;

use crate::database::Trigger;
use crate::database::cancel::CANCELED;
use crate::ids::{DbId, SessionId};
use crate::once::Once;
use crate::outbound;
use crate::relays::Relay;
use crate::relays::forwards::{Early, Fence, Forward};
use crate::relays::locks::SourceLocks;
use crate::reply::error_text;
use crate::server::Server;
use crate::server::relaying::locks::Locked;
use crate::session::locks::Held;
use crate::work::{Nature, asked_schema};

/// What a source answers to who asked.
enum Answer {
    /// This is the reply, as of a state if that has a name.
    Reply(Option<Uuid>, Vec<u8>),
    /// The request is refused, with this error.
    Error(Vec<u8>),
    /// The request is to be sent again without an id.
    Plain,
    /// The request was taken back, and nothing has come of it.
    Canceled,
    /// A transaction that its client has no locks for has not been made before.
    NotMade,
    /// The source says that it has taken back what was called back; a relay says so of what it has lost, too.
    CalledBack,
    /// A transaction has not been made under its id, and never will be.
    Never,
    /// A transaction that was sent before has this result. If that has changed nothing, what was sent before may come
    /// yet, and change something: the source is asked what has come of the id, and promises that nothing will.
    Again(Vec<u8>),
    /// Nobody can say whether it was committed, or what it returned.
    Unknown,
}

/// The error of a relay whose source has no `weir_transact`.
pub(super) const NOT_SUPPORTED: &str = "not supported";

impl Server {
    /// Whether a transaction goes to the source of a relay as it is. One of a client with less than all
    /// rights, or that may wait, is tried here first. What reads under a lock goes there as well: the source knows who
    /// has that, and has what its last owner wrote.
    pub(in crate::server) fn is_for_source(
        &self,
        session: SessionId,
        db: DbId,
        once: Option<Once>,
        nature: impl Fn() -> Nature,
    ) -> bool {
        if self.relays.get(db).is_none() || Once::explains(once) {
            return false;
        }
        let identity = self.sessions.get(session).map(|session| session.identity());
        let may_all = identity.is_some_and(|who| who.may_all());
        let Nature { only_reads, may_wait, asserts, by_version } = nature();
        let writes = !only_reads || once.is_some_and(Once::is_judged);
        !may_wait && !by_version && if writes { may_all } else { asserts }
    }

    /// Sends the source what is for it, in order.
    pub(super) fn forward_to_source(&mut self, db: DbId) {
        self.queue_forwards(db);
        self.ask_of_doubts(db);
        self.relays.get_mut(db).forwards.look_again();
        let mut at_work: BTreeSet<SessionId> = self.at_work(db).collect();
        loop {
            let relay = self.relays.get_mut(db);
            let may_ask = relay.follower.may_ask();
            let Some(mut forward) = may_ask.then(|| relay.forwards.next()).flatten() else {
                return;
            };
            let session = forward.trigger.origin.session();
            if let Some(session) = session.filter(|session| at_work.contains(session)) {
                relay.forwards.again_behind_helper(forward, session);
                continue;
            }
            let locked = match self.refusal(db, &forward) {
                Some(error) => Locked::Ends(error),
                None => self.lock_at_source(db, &mut forward),
            };
            let forwards = &mut self.relays.get_mut(db).forwards;
            // What runs here comes behind what the source is to answer the session before.
            let runs_here = matches!(locked, Locked::Refused(_) | Locked::Aside);
            if runs_here && forwards.is_asked_by(&forward.trigger) {
                forwards.again_alone(forward);
                continue;
            }
            match locked {
                Locked::Goes => self.send_to_source(db, forward),
                Locked::Asked => self.relays.get_mut(db).forwards.again(forward),
                Locked::Ends(error) => self.refuse_request(forward.trigger, &error),
                Locked::Refused(reply) => self.give_reply(db, forward.trigger, reply),
                Locked::Aside => {
                    let Self { sessions, databases, round, .. } = self;
                    forward.trigger.lacks_locks = true;
                    at_work.extend(session);
                    databases.set_aside_new(sessions, forward.trigger);
                    round.postpone();
                }
                Locked::Waits => return self.relays.get_mut(db).forwards.again(forward),
            }
        }
    }

    /// Asks the source what has come of what one before had under locks: what has not been made by then never will be.
    fn ask_of_doubts(&mut self, db: DbId) {
        let relay = self.relays.get_mut(db);
        if !relay.follower.may_ask() {
            return;
        }
        let mut out = Vec::new();
        for doubt in relay.forwards.take_doubts(relay.has_once()) {
            let params = outcome(&relay.name, (doubt.id, doubt.since), None);
            let number = relay.follower.ask_for_owner("weir_outcome", &params, &mut out);
            relay.forwards.asked_of(number, doubt);
        }
        self.carry_out_relay(db, out);
    }

    /// What is for the source waits for its turn. While the source is away it counts as kept for its session.
    fn queue_forwards(&mut self, db: DbId) {
        for mut trigger in self.databases.take_to_forward(db) {
            if let Err(error) = trigger.check_versions() {
                self.refuse_request(trigger, &error_text(&error));
                continue;
            }
            let relay = self.relays.get_mut(db);
            if relay.follower.may_ask() {
                relay.forwards.push(trigger, 0);
                continue;
            }
            self.assert_away(db, &trigger);
            let Self { sessions, relays, .. } = self;
            let relay = relays.get_mut(db);
            match outbound::admit(sessions, &mut trigger) {
                Ok(Some(bytes)) => relay.forwards.push(trigger, bytes),
                Ok(None) => self.lose_request(trigger),
                Err(error) => self.refuse_request(trigger, &error_text(&error)),
            }
        }
    }

    /// A session takes back a transaction that waits for a source. What is with the source may wait there:
    /// the source hears of it, and answers.
    pub(in crate::server) fn cancel_forward(&mut self, session: SessionId, request: &[u8]) {
        let dbs: Vec<DbId> = self.relays.by_db.keys().copied().collect();
        for db in dbs {
            self.queue_forwards(db);
            let relay = self.relays.get_mut(db);
            match relay.forwards.take_request(session, request) {
                // Whether it was made before the connection ended, nobody knows.
                Some(forward) if forward.was_sent => self.lose_request(forward.trigger),
                Some(forward) => {
                    let Self { shell, sessions, databases, .. } = self;
                    databases.cancel(shell, sessions, forward.trigger);
                }
                None => self.cancel_at_source(db, session, request),
            }
        }
    }

    fn cancel_at_source(&mut self, db: DbId, session: SessionId, request: &[u8]) {
        let relay = self.relays.get_mut(db);
        let number = relay.forwards.cancel_sent(session, request);
        self.tell_canceled(db, number);
    }

    /// The source hears that nobody wants these any more.
    pub(super) fn tell_canceled(&mut self, db: DbId, numbers: impl IntoIterator<Item = u64>) {
        let (mut out, relay) = (Vec::new(), self.relays.get_mut(db));
        for number in numbers {
            relay.follower.tell_for_owner("cancel", format!("[{number}]").as_bytes(), &mut out);
        }
        self.carry_out_relay(db, out);
    }

    /// A session has left: what the sources have not got of it is not sent, and the rest is taken back there.
    pub(in crate::server) fn leave_sources(&mut self, session: SessionId) {
        self.relays.paths.forget_session(session);
        let dbs: Vec<DbId> = self.relays.by_db.keys().copied().collect();
        for db in dbs {
            let forwards = &mut self.relays.get_mut(db).forwards;
            let (not_sent, sent) =
                (forwards.forget_session(session), forwards.cancel_all_sent(session));
            for trigger in not_sent {
                self.lose_request(trigger);
            }
            self.tell_canceled(db, sent);
        }
    }

    /// The error of a request that the source cannot be asked for.
    fn refusal(&self, db: DbId, forward: &Forward) -> Option<Vec<u8>> {
        let (relay, trigger) = (self.relays.get(db)?, &forward.trigger);
        let has_once = relay.has_once();
        if forward.was_sent && !has_once {
            // Another server than the one that was asked first: nobody there knows of it.
            return Some(CANCELED.to_vec());
        }
        if trigger.is_judged() && !has_once {
            let details =
                "the source of this relay has no weir_transact, or gives its states no ids";
            return Some(error_text(&Error::new(NOT_SUPPORTED, details)));
        }
        if trigger.is_conversion() && relay.follower.is_source_clustered() {
            // Packaged members take what a cluster cannot have, and none of them ever serves again (3.1.0).
            let params = weir_json::validate(trigger.message.text().as_bytes());
            let params = params.expect("it was read when it was asked for");
            return asked_schema(params).err().map(|error| error_text(&error));
        }
        None
    }

    fn send_to_source(&mut self, db: DbId, mut forward: Forward) {
        let Self { sessions, relays, .. } = self;
        let relay = relays.get_mut(db);
        let has_once = relay.has_once();
        let trigger = &forward.trigger;
        let own = trigger.origin.session().and_then(|id| sessions.channel_at_source(id));
        let (method, params) = if trigger.is_conversion() {
            ("convert", trigger.message.text().as_bytes().to_vec())
        } else {
            let chosen = trigger.chosen();
            let since = match (chosen, forward.since, relay.follower.last()) {
                (Some(chosen), ..) => chosen.since,
                (None, Some(since), _) => since,
                (None, None, last) => last,
            };
            // A state without an id is none that the source could know.
            let is_known = since != Uuid::ZERO && !forward.is_plain;
            let is_once = has_once && (is_known || chosen.is_some());
            forward.since = is_once.then_some(since);
            let id = chosen.map_or(trigger.origin.eid, |chosen| chosen.id);
            let params = parameters(trigger);
            match (is_once, trigger.is_outcome() || forward.answer.is_some()) {
                (true, true) => {
                    let channel = channel_at(relay, "weir_outcome.channel", own);
                    ("weir_outcome", outcome(&relay.name, (id, since), channel))
                }
                (true, false) => {
                    let (mut options, bar) = match forward.fence {
                        Fence::Locks if relay.follower.has("weir_transact.locks") => {
                            (heard(&relay.locks, trigger), String::new())
                        }
                        Fence::Judged => (String::new(), never_holds(trigger.origin.eid)),
                        Fence::None | Fence::Locks | Fence::NotMade => Default::default(),
                    };
                    if let Some(channel) = channel_at(relay, "weir_transact.channel", own) {
                        options.push_str(&format!(r#","channel":{channel}"#));
                    }
                    ("weir_transact", with_id(params, (id, since, &options), &bar))
                }
                (false, _) => ("transact", params.as_bytes().to_vec()),
            }
        };
        let mut out = Vec::new();
        let number = relay.follower.ask_for_owner(method, &params, &mut out);
        if let Some(session) = forward.trigger.origin.session() {
            self.sessions.let_unlock_pass(session, || forward.trigger.may_wait());
        }
        relay.forwards.sent(number, forward);
        self.carry_out_relay(db, out);
    }

    /// The source has answered.
    pub(super) fn relay_reply(&mut self, db: DbId, number: u64, reply: Result<Vec<u8>, Vec<u8>>) {
        if self.sync_reply(db, number, &reply)
            || self.lock_reply(db, number, &reply)
            || self.conversions_reply(db, number)
            || self.relays.get_mut(db).forwards.outcome_came(number)
        {
            return;
        }
        let relay = self.relays.get_mut(db);
        let Some(forward) = relay.forwards.answered(number) else { return };
        let is_once = forward.since.is_some() && !forward.trigger.is_conversion();
        let answer = match reply {
            Err(error) if is_once && is_not_supported(&forward, &error) => {
                relay.lacks_once = true;
                if forward.is_canceled { Answer::Canceled } else { Answer::Plain }
            }
            Err(error) if forward.is_canceled && error == CANCELED => Answer::Canceled,
            Err(error) if forward.is_called_back && error == CANCELED => {
                if is_once {
                    Answer::CalledBack
                } else {
                    Answer::NotMade
                }
            }
            // That says nothing of what was sent before.
            Err(_) if forward.was_sent => Answer::Unknown,
            Err(error) => Answer::Error(error),
            Ok(outcome) if forward.answer.is_some() => {
                answer_by(&forward, &outcome).unwrap_or(Answer::Unknown)
            }
            Ok(result) if is_once && !forward.trigger.is_outcome() => {
                answer_of(&forward, &result).unwrap_or(Answer::Unknown)
            }
            Ok(result) => Answer::Reply(None, result),
        };
        match answer {
            // It may overtake its change, if much waits to be told here.
            Answer::Reply(Some(state), reply) if !self.has_state(db, state) => {
                let early = Early { state: Some(state), trigger: forward.trigger, reply };
                self.relays.get_mut(db).forwards.keep_answer(early);
            }
            Answer::Reply(..)
                if forward.trigger.is_conversion() && !self.has_schema_of(db, &forward.trigger) =>
            {
                self.keep_conversion(db, forward.trigger);
            }
            // What it changed is among the rows that are asked for, and is not told alone.
            Answer::Reply(None, reply)
                if !forward.trigger.is_conversion()
                    && !self.relays.get_mut(db).follower.is_following() =>
            {
                let early = Early { state: None, trigger: forward.trigger, reply };
                self.relays.get_mut(db).forwards.keep_answer(early);
            }
            Answer::Reply(_, reply) => self.give_reply(db, forward.trigger, reply),
            Answer::Error(error) => self.refuse_request(forward.trigger, &error),
            Answer::Unknown => self.lose_request(forward.trigger),
            Answer::NotMade => {
                let forward = Forward { fence: Fence::NotMade, ..Forward::new(forward.trigger) };
                self.relays.get_mut(db).forwards.again(forward);
            }
            Answer::CalledBack => {
                let (was_sent, fence) = (true, Fence::Judged);
                let forward = Forward { was_sent, fence, is_called_back: false, ..forward };
                self.relays.get_mut(db).forwards.again(forward);
            }
            Answer::Never => {
                let mut trigger = forward.trigger;
                trigger.origin.eid = self.databases.fresh_eid(&mut self.shell, db);
                self.relays.get_mut(db).forwards.again(Forward::new(trigger));
            }
            Answer::Again(result) => {
                let forward = Forward { answer: Some(result), is_told_anew: false, ..forward };
                self.relays.get_mut(db).forwards.again(forward);
            }
            Answer::Canceled => {
                let Self { shell, sessions, databases, .. } = self;
                databases.cancel(shell, sessions, forward.trigger);
            }
            Answer::Plain => {
                // No attempt came before, and none can be made under an id.
                self.relays.get_mut(db).forwards.refused(number, forward.trigger);
            }
        }
    }

    /// A conversion that the source has made is answered when the rows have come under its schema. None do if another
    /// conversion has led back to the schema that they have here: the source, say, is a relay that was told of neither.
    /// What it tells of schemas comes before its answer to who asks anything now.
    fn keep_conversion(&mut self, db: DbId, trigger: Trigger) {
        let relay = self.relays.get_mut(db);
        let mut out = Vec::new();
        let asks = relay.follower.may_ask();
        let number = asks.then(|| relay.follower.ask_for_owner("echo", b"[]", &mut out));
        relay.forwards.keep_conversion(trigger, number);
        self.carry_out_relay(db, out);
    }

    /// The source has answered who waits for the rows of conversions; false if that was something else.
    fn conversions_reply(&mut self, db: DbId, number: u64) -> bool {
        let relay = self.relays.get_mut(db);
        let is_following = relay.follower.is_following();
        let Some(converted) = relay.forwards.asked_for_rows(number, is_following) else {
            return false;
        };
        converted.into_iter().for_each(|trigger| self.give_reply(db, trigger, Vec::new()));
        true
    }

    /// Whether the rows here are under the schema that a conversion has led to.
    fn has_schema_of(&self, db: DbId, conversion: &Trigger) -> bool {
        let mut params = conversion.message.text().elements().into_iter().flatten();
        let wanted = params.nth(1).and_then(|schema| Schema::parse(schema).ok());
        // As the source says it: of what says the same in other words nothing more will be told.
        let has = |wanted: Schema| {
            self.databases.get(db).is_some_and(|db| db.schema().to_string() == wanted.to_string())
        };
        wanted.is_none_or(has)
    }

    /// Whether the relay has come to a state of which it is told now.
    fn has_state(&self, db: DbId, state: Uuid) -> bool {
        let has_passed = |relay: &Relay| relay.forwards.has_passed(state);
        self.databases.position_of(db, state).is_some()
            || self.relays.get(db).is_some_and(has_passed)
    }

    /// Gives answers whose changes have come.
    pub(super) fn give_early(&mut self, db: DbId) {
        let relay = self.relays.get_mut(db);
        let (databases, is_following) = (&self.databases, relay.follower.is_following());
        let has = |state: Option<Uuid>| match state {
            Some(state) => databases.position_of(db, state).is_some(),
            None => is_following,
        };
        for Early { trigger, reply, .. } in relay.forwards.take_answers(has) {
            self.give_reply(db, trigger, reply);
        }
    }

    fn give_reply(&mut self, db: DbId, trigger: Trigger, reply: Vec<u8>) {
        if trigger.is_conversion() {
            let Self { shell, sessions, databases, .. } = self;
            return databases.end_conversion(shell, sessions, &trigger.origin, Ok(()));
        }
        self.databases.file_answer(db, trigger, reply);
        self.decide(db);
    }

    /// Nobody can say any more what has become of a request, and its client is told so.
    pub(in crate::server) fn lose_request(&mut self, trigger: Trigger) {
        self.refuse_request(trigger, CANCELED);
    }
}

/// What a source says of a transaction under an id.
fn answer_of(forward: &Forward, result: &[u8]) -> Option<Answer> {
    let text = weir_json::validate(result).ok()?;
    let results = member(text, "results")?;
    let is_chosen = forward.trigger.chosen().is_some();
    let is_null = results.kind() == weir_json::Kind::Null;
    let error = results.elements().and_then(|mut results| error_in(results.next()?));
    if forward.fence == Fence::Judged && error.as_deref() == Some("not owner") {
        return Some(if forward.is_canceled { Answer::Canceled } else { Answer::NotMade });
    }
    // What was asked of its id on a connection that ended has been answered there. The client did not choose it.
    if !is_chosen && error.as_deref() == Some("not committed") {
        return Some(if forward.is_canceled { Answer::Canceled } else { Answer::Never });
    }
    // Nothing has run now, but may have before: at an earlier attempt from here, or from a source that lost
    // its own, or its leader. Who has chosen the id himself knows what the answer to his only attempt means.
    let is_unknown = error.as_deref() == Some("unknown state");
    if !is_chosen && is_null || (forward.was_sent || !is_chosen) && is_unknown {
        return Some(Answer::Unknown);
    }
    if forward.was_sent && !is_null {
        return Some(Answer::Again(result.to_vec()));
    }
    Some(Answer::Reply(state_of(text), results.as_bytes().to_vec()))
}

/// The answer to a transaction that was sent more than once, by what has come of its id.
fn answer_by(forward: &Forward, outcome: &[u8]) -> Option<Answer> {
    let text = weir_json::validate(forward.answer.as_deref()?).ok()?;
    let results = member(text, "results")?;
    let is_true = match outcome {
        b"\"not committed\"" => true,
        // If these are not the results of what is committed, those of an earlier attempt are lost.
        b"\"committed\"" => has_changed(results),
        _ => false,
    };
    let state = state_of(text).filter(|_| !forward.is_told_anew);
    is_true.then(|| Answer::Reply(state, results.as_bytes().to_vec()))
}

/// Whether results are those of a transaction that has changed something, as far as they say.
fn has_changed(results: Text<'_>) -> bool {
    let changes = |result: Text<'_>| {
        let count = member(result, "count").and_then(Text::integer);
        member(result, "uuid").is_some() || count.is_some_and(|count| count > 0)
    };
    let mut all = results.elements().into_iter().flatten();
    let has_failed = all.clone().any(|result| error_in(result).is_some());
    !has_failed && all.any(changes)
}

/// The error that an operation has ended with, or that an error of a request names.
fn error_in(result: Text<'_>) -> Option<String> {
    member(result, "error")?.str().map(|error| error.into_owned())
}

/// The state that an answer to `weir_transact` names, if the source gives states ids.
pub(super) fn state_of(answer: Text<'_>) -> Option<Uuid> {
    let id = Uuid::parse_bytes(member(answer, "id")?.str()?.as_bytes());
    id.filter(|id| *id != Uuid::ZERO)
}

fn member<'a>(object: Text<'a>, name: &str) -> Option<Text<'a>> {
    object.object()?.get(name)
}

/// Whether a relay between here and the source says that the source has no `weir_transact`.
fn is_not_supported(forward: &Forward, error: &[u8]) -> bool {
    let is_plain = !forward.trigger.is_judged() && !forward.was_sent;
    is_plain && says_not_supported(error)
}

/// Whether an error is that of a relay whose source lacks what was asked for.
pub(super) fn says_not_supported(error: &[u8]) -> bool {
    weir_json::validate(error).ok().and_then(error_in).as_deref() == Some(NOT_SUPPORTED)
}

/// The parameters of a transaction, the database's name first.
fn parameters(trigger: &Trigger) -> Text<'_> {
    match Message::parse(trigger.message.text()) {
        // The plain form of one that came with an id has none of a request.
        Ok(Message::Request { params, .. } | Message::Notification { params, .. }) => params,
        _ => unreachable!("a transaction is a request"),
    }
}

/// An operation that fails before others run: a lock of this name is nobody's.
fn never_holds(random: Uuid) -> String {
    format!(r#",{{"op":"assert","lock":"_{}"}}"#, random.to_string().replace('-', "_"))
}

/// The option that says what the source has told of the locks that a transaction asserts: if it has told more since,
/// others have had them, and it refuses the transaction.
fn heard(locks: &SourceLocks, trigger: &Trigger) -> String {
    let asserted = trigger.locks.iter().flatten();
    let one = |held: &Held| (held.name.clone(), Value::from(locks.heard(&held.name) as i64));
    format!(r#","locks":{}"#, Value::Object(asserted.map(one).collect()))
}

/// The parameters of a transaction with an id and other options behind the database's name, and with one more operation
/// before the others, unless that is empty.
fn with_id(params: Text<'_>, (id, since, options): (Uuid, Uuid, &str), first: &str) -> Vec<u8> {
    let mut elements = params.elements().into_iter().flatten();
    let mut text = b"[".to_vec();
    text.extend(elements.next().map(Text::as_bytes).unwrap_or_default());
    text.extend(format!(r#",{{"id":"{id}","since":"{since}"{options}}}{first}"#).bytes());
    for operation in elements {
        text.push(b',');
        text.extend_from_slice(operation.as_bytes());
    }
    text.push(b']');
    text
}

/// The parameters of `weir_outcome`.
fn outcome(database: &str, (id, since): (Uuid, Uuid), channel: Option<u16>) -> Vec<u8> {
    let database = Value::from(database);
    let options = channel.map_or(String::new(), |channel| format!(r#",{{"channel":{channel}}}"#));
    format!(r#"[{database},"{id}","{since}"{options}]"#).into_bytes()
}

/// The channel of the client that asks, if the source has channels: so clients of a relay do not wait for each other there.
fn channel_at(relay: &Relay, option: &str, own: Option<u16>) -> Option<u16> {
    own.filter(|_| relay.follower.has(option))
}
