//! The dialogue of a backup with the server that is active (ovsdb-server(1), "Syncing Options").
//!
//! After each connect:
//!
//! 1. `get_server_id`: nobody follows himself.
//! 2. `list_dbs`, `get_schema`: the database is there, and its rows fit in here.
//! 3. `monitor` of all tables but the excluded: the answer replaces what is here.
//! 4. Each `update` is one transaction here.
//!
//! What cannot get better by itself ends the replication; a lost connection never does.

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_data::{Error, RowImage, Schema, Uuid};
use weir_json::{Kind, Text, Value};

use crate::compatible;
use crate::session::{Action, Input, Level, Options, Said, Session};
use crate::updates;

/// What is followed, and how.
#[derive(Clone, Debug)]
pub struct Source {
    /// The active server, as logs and `sync-status` name it.
    pub target: String,
    /// How the connection is kept.
    pub options: Options,
    /// What this server answers to `get_server_id`.
    pub own_id: Uuid,
    /// Tables that are left alone.
    pub excluded: BTreeSet<String>,
}

/// What the owner must do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Begin to connect.
    Connect,
    /// Send this message.
    Send(Vec<u8>),
    /// Close the connection or give up the attempt; nothing more is heard of it.
    Close,
    /// Make the rows of all tables but the excluded ones these, in one transaction.
    Replace(Vec<RowImage>),
    /// Make these rows like that, in one transaction.
    Update(Vec<RowImage>),
    /// The replication is over.
    Failed,
    /// Write a log line.
    Log {
        /// vlog module.
        module: &'static str,
        /// Severity.
        level: Level,
        /// The text.
        text: String,
    },
}

/// How far it is, as `sync-status` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The dialogue is under way, or has not begun.
    Connecting,
    /// Rows have come; it stays so while a lost connection is made again.
    Replicating,
    /// The replication is over.
    Failed,
}

/// Reads the rows in a long message elsewhere, as [`Replication::handle`] would here.
#[derive(Clone, Debug)]
pub struct RowReader {
    schema: Arc<Schema>,
    phase: Phase,
    request: Option<u64>,
}

/// Rows of the source.
#[derive(Debug)]
pub enum Rows {
    /// All that there are.
    All(Vec<RowImage>),
    /// Rows that have changed.
    Changed(Vec<RowImage>),
}

impl RowReader {
    /// The rows; `None` if the message has none, or they are not as they should be: then it is for
    /// [`Replication::handle`] to say what is wrong.
    pub fn read(&self, message: &[u8]) -> Option<Rows> {
        match (self.phase, Session::read(message, &mut Vec::new()).ok()?) {
            (Phase::Monitor, Said::Reply(id, Ok(result))) if is_awaited(self.request, id) => {
                updates::parse(result, &self.schema).ok().map(Rows::All)
            }
            (Phase::Following, Said::Notice("update", params)) => {
                let mut elements = params.elements()?;
                let (id, images) = (elements.next()?, elements.next()?);
                let is_ours = elements.next().is_none() && id.str()? == self.schema.name.as_str();
                let images = is_ours.then(|| updates::parse(images, &self.schema).ok());
                images.flatten().map(Rows::Changed)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    ServerId,
    Databases,
    Schema,
    Monitor,
    Following,
    Failed,
}

/// The replication of one database.
#[derive(Debug)]
pub struct Replication {
    source: Source,
    session: Session,
    /// The local schema.
    schema: Arc<Schema>,
    phase: Phase,
    /// The request that is not answered yet.
    request: Option<u64>,
    actions: Vec<Action>,
}

/// Why a message is not followed.
enum Stop {
    /// Something that stays wrong.
    Failed(Error),
    /// Something that stays wrong, and all has been said.
    Said,
    /// Something that may be better on another connection.
    Again(String),
}

impl Replication {
    /// A replication into a database of this schema; its first [`Input::Tick`] begins it.
    pub fn new(source: Source, schema: Arc<Schema>) -> Self {
        Self {
            session: Session::new(&source.target, &source.options),
            source,
            schema,
            phase: Phase::Begin,
            request: None,
            actions: Vec::new(),
        }
    }

    /// What is followed.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What the rows conform to here.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Changes how the connection is kept, without touching it.
    pub fn set_options(&mut self, options: Options) {
        self.session.set_options(&options);
        self.source.options = options;
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        match self.phase {
            Phase::Following => Status::Replicating,
            Phase::Failed => Status::Failed,
            _ => Status::Connecting,
        }
    }

    /// When [`Input::Tick`] has something to do, on the monotonic clock.
    pub fn next_wakeup_us(&self) -> Option<u64> {
        (self.phase != Phase::Failed).then(|| self.session.next_wakeup_us()).flatten()
    }

    /// Takes what happened.
    pub fn handle(&mut self, now_us: u64, input: Input<'_>, out: &mut Vec<Output>) {
        if self.phase == Phase::Failed {
            return;
        }
        match input {
            Input::Up => {
                self.session.connected(now_us, &mut self.actions);
                self.ask("get_server_id", b"[]", Phase::ServerId);
            }
            Input::Message(bytes) => {
                self.session.heard(now_us);
                self.message(now_us, bytes, out);
            }
            Input::Activity => self.session.heard(now_us),
            Input::Down(error) => {
                self.request = None;
                self.session.disconnected(now_us, error, &mut self.actions);
            }
            Input::Tick => self.session.run(now_us, &mut self.actions),
        }
        self.pass_on(out);
    }

    /// What reads the rows of the next message, if it may have some.
    pub fn row_reader(&self) -> Option<RowReader> {
        let (schema, phase, request) = (Arc::clone(&self.schema), self.phase, self.request);
        let may_come = matches!(phase, Phase::Monitor | Phase::Following);
        may_come.then_some(RowReader { schema, phase, request })
    }

    /// A [`RowReader`] has read rows, all that there are or changed ones; the owner makes his like
    /// them.
    pub fn have_read(&mut self, now_us: u64, is_all: bool, out: &mut Vec<Output>) {
        self.session.heard(now_us);
        if is_all {
            self.request = None;
            self.say_reset(out);
            self.phase = Phase::Following;
        }
    }

    /// The rows could not be made like that, and never will be.
    pub fn fail(&mut self, error: &Error, out: &mut Vec<Output>) {
        self.phase = Phase::Failed;
        let text = format!("unexpected ovsdb error: {error}");
        out.push(Output::Log { module: "ovsdb_error", level: Level::Error, text });
        out.push(Output::Failed);
    }

    /// The rows could not be written this time: they are asked for again after a pause.
    pub fn restart(&mut self, now_us: u64, out: &mut Vec<Output>) {
        self.request = None;
        self.session.restart(now_us, &mut self.actions);
        self.pass_on(out);
    }

    fn pass_on(&mut self, out: &mut Vec<Output>) {
        out.extend(self.actions.drain(..).map(|action| match action {
            Action::Connect => Output::Connect,
            Action::Send(message) => Output::Send(message),
            Action::Close => Output::Close,
            Action::Log(level, text) => Output::Log { module: "reconnect", level, text },
        }));
    }

    fn ask(&mut self, method: &str, params: &[u8], phase: Phase) {
        let (id, message) = self.session.request(method, params);
        self.request = Some(id);
        self.phase = phase;
        self.actions.push(Action::Send(message));
    }

    fn message(&mut self, now_us: u64, bytes: &[u8], out: &mut Vec<Output>) {
        match self.follow(bytes, out) {
            Ok(()) => {}
            Err(Stop::Failed(error)) => self.fail(&error, out),
            Err(Stop::Said) => {
                self.phase = Phase::Failed;
                out.push(Output::Failed);
            }
            Err(Stop::Again(text)) => {
                self.say(Level::Warning, text, out);
                self.restart(now_us, out);
            }
        }
    }

    fn follow(&mut self, bytes: &[u8], out: &mut Vec<Output>) -> Result<(), Stop> {
        let target = &self.source.target;
        let said = Session::read(bytes, &mut self.actions);
        match said.map_err(|error| Stop::Again(format!("{target}: {error}")))? {
            Said::Nothing => Ok(()),
            Said::Notice("update", params) => self.update(params, out),
            Said::Notice(..) => Ok(()),
            Said::Reply(id, Ok(result)) if is_awaited(self.request, id) => self.reply(result, out),
            Said::Reply(id, Err(error)) if is_awaited(self.request, id) => {
                let (name, error) = (&self.schema.name, error.to_value());
                Err(Stop::Again(format!("{name}: {target} refused a request: {error}")))
            }
            Said::Reply(..) => {
                let text = format!("{}: received unexpected reply.", self.schema.name);
                self.say(Level::Warning, text, out);
                Ok(())
            }
        }
    }

    fn reply(&mut self, result: Text<'_>, out: &mut Vec<Output>) -> Result<(), Stop> {
        self.request = None;
        let name = self.schema.name.clone();
        match self.phase {
            Phase::ServerId => self.check_server(result)?,
            Phase::Databases => {
                let names = result.elements().filter(|_| result.kind() == Kind::Array);
                let Some(mut names) = names else {
                    return Err(failed(
                        "list_dbs",
                        format!("{name}: list_dbs response is not array"),
                    ));
                };
                if !names.any(|found| found.str().as_deref() == Some(&name)) {
                    let details = format!("{name}: database name is not in the list");
                    return Err(failed("list_dbs", details));
                }
                let params = weir_json::array([name.as_str()]).to_string();
                self.ask("get_schema", params.as_bytes(), Phase::Schema);
            }
            Phase::Schema => self.check_schema(result, out)?,
            Phase::Monitor => {
                self.say_reset(out);
                let images = updates::parse(result, &self.schema).map_err(Stop::Failed)?;
                self.phase = Phase::Following;
                out.push(Output::Replace(images));
            }
            Phase::Begin | Phase::Following | Phase::Failed => {
                unreachable!("an answer is awaited only in the phases that have asked")
            }
        }
        Ok(())
    }

    fn check_server(&mut self, result: Text<'_>) -> Result<(), Stop> {
        let name = &self.schema.name;
        let Some(id) = result.string().and_then(|id| Uuid::parse_bytes(&id)) else {
            return Err(failed("get_server_id", format!("{name}: Server ID is not valid UUID")));
        };
        if id == self.source.own_id {
            let details = format!("{name}: Self replicating is not allowed");
            return Err(Stop::Failed(Error::new("Server ID check failed", details)));
        }
        self.ask("list_dbs", b"[]", Phase::Databases);
        Ok(())
    }

    fn check_schema(&mut self, result: Text<'_>, out: &mut Vec<Output>) -> Result<(), Stop> {
        let name = self.schema.name.clone();
        let remote = Schema::parse(result).map_err(Stop::Failed)?;
        if remote.name != name {
            let text = format!("{name}: unexpected schema {}.", remote.name);
            self.say(Level::Warning, text, out);
            return Err(Stop::Said);
        }
        if remote != *self.schema {
            let text = format!(
                "{name}: Schema version mismatch, checking if {name} can still be replicated or \
                 not."
            );
            self.say(Level::Info, text, out);
            if let Err(why) = compatible::fits(&self.schema, &remote) {
                self.say(Level::Info, why, out);
                self.say(Level::Info, format!("{name} cannot be replicated."), out);
                self.say(Level::Warning, "Nothing to replicate.".to_owned(), out);
                return Err(Stop::Said);
            }
            self.say(Level::Info, format!("{name} can be replicated."), out);
        }
        let params = self.monitor_params(&remote);
        self.ask("monitor", &params, Phase::Monitor);
        Ok(())
    }

    /// The database, its name again as the monitor's, and all columns of its tables.
    fn monitor_params(&self, remote: &Schema) -> Vec<u8> {
        let all = || Value::Array(vec![Value::Object(Default::default())]);
        let tables = remote.table_ids().map(|(_, table)| table.name.clone());
        let tables = tables.filter(|table| !self.source.excluded.contains(table));
        let requests = Value::Object(tables.map(|table| (table, all())).collect());
        let name = || Value::from(remote.name.as_str());
        Value::Array(vec![name(), name(), requests]).to_string().into_bytes()
    }

    fn update(&mut self, params: Text<'_>, out: &mut Vec<Output>) -> Result<(), Stop> {
        let mut elements = params.elements().into_iter().flatten();
        let (Some(id), Some(images), None) = (elements.next(), elements.next(), elements.next())
        else {
            return Ok(());
        };
        let Some(id) = id.str() else { return Ok(()) };
        let name = &self.schema.name;
        if id != name.as_str() {
            let text = format!("{name}: received update for unexpected database {id}");
            self.say(Level::Warning, text, out);
            return Err(Stop::Said);
        }
        if self.phase == Phase::Following {
            let images = updates::parse(images, &self.schema).map_err(Stop::Failed)?;
            out.push(Output::Update(images));
        }
        Ok(())
    }

    fn say_reset(&self, out: &mut Vec<Output>) {
        let name = &self.schema.name;
        let text = format!("{name}: Monitor reply received. Resetting the database.");
        self.say(Level::Info, text, out);
    }

    fn say(&self, level: Level, text: String, out: &mut Vec<Output>) {
        out.push(Output::Log { module: "replication", level, text });
    }
}

fn is_awaited(request: Option<u64>, id: Text<'_>) -> bool {
    let id = id.integer().and_then(|id| u64::try_from(id).ok());
    id.is_some() && id == request
}

fn failed(method: &str, details: String) -> Stop {
    Stop::Failed(Error::new(format!("{method} failed"), details))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff;

    const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{
        "A":{"columns":{"x":{"type":"integer"}}},"B":{"columns":{"y":{"type":"string"}}}}}"#;

    const ROW: &str = "6e4d5c9e-32ba-4e6f-9b49-b7e1a0a6a1a1";

    fn replication(excluded: &[&str]) -> Replication {
        let source = Source {
            target: "tcp:h:1".into(),
            options: Options { probe_ms: 60_000, max_backoff_ms: backoff::MS_MAX },
            own_id: Uuid::from_u128(7),
            excluded: excluded.iter().map(|&table| table.to_owned()).collect(),
        };
        Replication::new(source, Arc::new(Schema::parse_bytes(SCHEMA.as_bytes()).unwrap()))
    }

    fn give(replication: &mut Replication, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        replication.handle(1_000_000, input, &mut out);
        out
    }

    /// Connects; the replies are given one after the other to the requests, which are returned.
    fn talk(replication: &mut Replication, replies: &[&str]) -> (Vec<String>, Vec<Output>) {
        let mut rest = give(replication, Input::Tick);
        rest.extend(give(replication, Input::Up));
        let mut requests = Vec::new();
        for reply in replies {
            let at = rest.iter().position(|output| matches!(output, Output::Send(_)));
            let Output::Send(request) = rest.remove(at.expect("a request")) else { continue };
            let request = Value::parse(&request).unwrap();
            let id = request.get("id").and_then(Value::as_i64).unwrap();
            let (method, params) = (request.get("method").unwrap(), request.get("params").unwrap());
            requests.push(format!("{} {params}", method.as_str().unwrap()));
            let message = format!(r#"{{"id":{id},"result":{reply},"error":null}}"#);
            rest.extend(give(replication, Input::Message(message.as_bytes())));
        }
        (requests, rest)
    }

    fn log(outputs: &[Output]) -> Vec<&str> {
        fn text(output: &Output) -> Option<&str> {
            match output {
                Output::Log { text, .. } => Some(text),
                _ => None,
            }
        }
        outputs.iter().filter_map(text).filter(|text| !text.starts_with("tcp:")).collect()
    }

    const OTHER_ID: &str = r#""00000000-0000-0000-0000-000000000008""#;

    #[test]
    fn the_dialogue_of_a_backup() {
        let mut backup = replication(&["B"]);
        let rows =
            format!(r#"{{"A":{{"{ROW}":{{"new":{{"x":5,"_version":["uuid","{ROW}"]}}}}}}}}"#);
        let (requests, rest) = talk(&mut backup, &[OTHER_ID, r#"["C","D"]"#, SCHEMA, &rows]);
        let expected = [
            "get_server_id []",
            "list_dbs []",
            r#"get_schema ["D"]"#,
            r#"monitor ["D","D",{"A":[{}]}]"#,
        ];
        assert_eq!(requests, expected);
        let Some(Output::Replace(images)) = rest.last() else { panic!("{rest:?}") };
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].values.as_ref().map(Vec::len), Some(1));
        assert_eq!(backup.status(), Status::Replicating);
        let update = format!(
            r#"{{"id":null,"method":"update","params":["D",{{"A":{{"{ROW}":{{"old":{{"x":5}}}}}}}}]}}"#
        );
        let outputs = give(&mut backup, Input::Message(update.as_bytes()));
        let Some(Output::Update(images)) = outputs.last() else { panic!("{outputs:?}") };
        assert_eq!(images[0].values, None);
    }

    #[test]
    fn nobody_follows_himself() {
        let mut backup = replication(&[]);
        let own = r#""00000000-0000-0000-0000-000000000007""#;
        let (_, rest) = talk(&mut backup, &[own]);
        let expected =
            ["unexpected ovsdb error: Server ID check failed: D: Self replicating is not allowed"];
        assert_eq!(log(&rest), expected);
        assert_eq!(rest.last(), Some(&Output::Failed));
        assert_eq!(backup.next_wakeup_us(), None);
    }

    #[test]
    fn what_stays_wrong_ends_it() {
        for (replies, expected) in [
            (&["7"][..], "get_server_id failed: D: Server ID is not valid UUID"),
            (&[OTHER_ID, "{}"], "list_dbs failed: D: list_dbs response is not array"),
            (&[OTHER_ID, r#"["E"]"#], "list_dbs failed: D: database name is not in the list"),
            (&[OTHER_ID, r#"["D"]"#, SCHEMA, r#"{"C":{}}"#], "unknown table: unknown table C"),
            (&[OTHER_ID, r#"["D"]"#, r#"{"name":"E","tables":{}}"#], "D: unexpected schema E."),
        ] {
            let mut backup = replication(&[]);
            let (_, rest) = talk(&mut backup, replies);
            let said = log(&rest).pop().unwrap_or_default().to_owned();
            assert!(said.ends_with(expected), "{said}");
            assert_eq!((backup.status(), rest.last()), (Status::Failed, Some(&Output::Failed)));
        }
    }

    #[test]
    fn another_schema_is_checked_for_what_it_has() {
        let less =
            r#"{"name":"D","version":"0.9.0","tables":{"A":{"columns":{"x":{"type":"integer"}}}}}"#;
        let (requests, rest) = talk(&mut replication(&[]), &[OTHER_ID, r#"["D"]"#, less, "{}"]);
        assert_eq!(requests[3], r#"monitor ["D","D",{"A":[{}]}]"#);
        assert_eq!(
            log(&rest)[..2],
            [
                "D: Schema version mismatch, checking if D can still be replicated or not.",
                "D can be replicated.",
            ]
        );
        let more =
            r#"{"name":"D","version":"2.0.0","tables":{"C":{"columns":{"x":{"type":"integer"}}}}}"#;
        let (_, rest) = talk(&mut replication(&[]), &[OTHER_ID, r#"["D"]"#, more]);
        let said = log(&rest);
        assert!(said.ends_with(&["D cannot be replicated.", "Nothing to replicate."]), "{said:?}");
        assert_eq!(rest.last(), Some(&Output::Failed));
    }

    #[test]
    fn a_lost_connection_begins_the_dialogue_again() {
        let mut backup = replication(&[]);
        talk(&mut backup, &[OTHER_ID, r#"["D"]"#, SCHEMA, "{}"]);
        give(&mut backup, Input::Down(None));
        // As the reference: the rows are there, so it goes on to say so.
        assert_eq!(backup.status(), Status::Replicating);
        let at = backup.next_wakeup_us().unwrap();
        let mut out = Vec::new();
        backup.handle(at, Input::Tick, &mut out);
        assert!(out.contains(&Output::Connect), "{out:?}");
        backup.handle(at, Input::Up, &mut out);
        assert_eq!(backup.status(), Status::Connecting);
        assert!(matches!(out.last(), Some(Output::Send(_))), "{out:?}");
    }

    #[test]
    fn probes_are_answered_and_nonsense_starts_again() {
        let mut backup = replication(&[]);
        talk(&mut backup, &[OTHER_ID]);
        let echo = br#"{"id":"echo","method":"echo","params":[]}"#;
        let outputs = give(&mut backup, Input::Message(echo));
        let reply = br#"{"id":"echo","result":[],"error":null}"#.to_vec();
        assert_eq!(outputs, [Output::Send(reply)]);
        let outputs = give(&mut backup, Input::Message(br#"{"id":7}"#));
        assert!(outputs.contains(&Output::Close), "{outputs:?}");
        assert_ne!(backup.status(), Status::Failed);
    }
}
