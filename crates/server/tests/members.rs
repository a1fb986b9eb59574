//! Members of clusters whose disk answers when it is told to: what admin commands do meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_cluster::{Mark, Position};
use weir_data::{Schema, Uuid};
use weir_engine::Database;
use weir_log::clustered::{Header, State};
use weir_server::effect::{Effect, MemberHeader};
use weir_server::event::{CommandId, DbId, Event, Now, RemoteId, SessionId};
use weir_server::load::{Finished, Loaded, Loader, member_snapshot};
use weir_server::work::{Watcher, Word, Work, WorkId};
use weir_server::{Config, Server};

use crate::shell::{insert, transact};

const SCHEMA: &str = r#"{"name":"Net","version":"1.0.0","tables":{
    "Port":{"columns":{"name":{"type":"string"}}},
    "Manager":{"columns":{"target":{"type":"string"}}}}}"#;

const CONFIG: &str = "/etc/config.json";

const PATH: &str = "/db/member.db";

const ADDRESS: &str = "tcp:192.0.2.1:6643";

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// The file of the only member of its cluster.
fn alone() -> Vec<u8> {
    of_cluster([(id(1), ADDRESS)])
}

/// The file of one of two members, the other of which is nowhere.
fn without_leader() -> Vec<u8> {
    of_cluster([(id(1), ADDRESS), (id(4), "tcp:192.0.2.9:6643")])
}

/// The file of the first of these members.
fn of_cluster<const N: usize>(members: [(Uuid, &str); N]) -> Vec<u8> {
    let schema = Arc::new(Schema::parse_bytes(SCHEMA.as_bytes()).expect("a schema"));
    let servers = members.map(|(id, address)| (id, address.to_owned()));
    let servers = Arc::new(servers.into());
    let last = Position { term: 1, index: 1 };
    let mark = Mark { last, eid: id(2), servers, election_timer: 1000 };
    let (address, name, cluster) = (ADDRESS.to_owned(), "Net".to_owned(), Some(id(3)));
    let header = MemberHeader { server: id(1), address, name, cluster, mark };
    member_snapshot(&header, &Database::new(schema, 1).snapshot(), "", 1)
}

/// The file of a server that asks where nobody is.
fn joining() -> Vec<u8> {
    let mut file = Vec::new();
    let state = State::Joining { remotes: vec!["tcp:192.0.2.9:6643".to_owned()] };
    let (local_address, name) = (ADDRESS.to_owned(), "Net".to_owned());
    Header { server_id: id(1), local_address, name, cluster_id: None, state }.write(&mut file);
    file
}

fn load(file: &[u8]) -> Result<Box<Loaded>, String> {
    let index = |offset: u64| usize::try_from(offset).expect("it is in memory");
    let (mut loader, mut at) = (Loader::seekable(PATH, 7), 0);
    loop {
        loader.feed(&file[at..])?;
        if let Some(offset) = loader.again_from() {
            at = index(offset);
            continue;
        }
        match loader.finish()? {
            Finished::Again(mut again) => {
                at = index(again.again_from().unwrap_or(0));
                loader = again;
            }
            Finished::Loaded(mut loaded) => {
                let mut read = |at, len| Ok(file[index(at)..index(at + len)].to_vec());
                loaded.read_texts(&mut read)?;
                return Ok(loaded);
            }
        }
    }
}

/// A server and what it has asked for.
struct Stand {
    server: Server,
    now: Now,
    /// Steps that are not on the disk, with their bytes.
    steps: Vec<(DbId, u64, usize)>,
    /// The disk has no room for longer steps.
    room: usize,
    /// Files that are to be opened, and whether the configuration is to be read.
    opening: Vec<DbId>,
    is_reading: bool,
    listening: Vec<String>,
    replies: Vec<(CommandId, Result<String, String>)>,
    received: Vec<u8>,
    closed: Vec<SessionId>,
    /// What helpers are to do.
    work: Vec<(WorkId, Work)>,
    /// What they are told meanwhile.
    said: BTreeMap<WorkId, Word>,
}

impl Stand {
    fn new(config: Config) -> Self {
        let now = Now { monotonic_us: 1_000_000, wall_ms: 1_000_000 };
        let mut stand = Self {
            server: Server::new(now, config),
            now,
            steps: vec![],
            room: usize::MAX,
            opening: vec![],
            is_reading: false,
            listening: vec![],
            replies: vec![],
            received: vec![],
            closed: vec![],
            work: vec![],
            said: BTreeMap::new(),
        };
        stand.round([]);
        stand
    }

    /// A round with these events.
    fn round(&mut self, events: impl IntoIterator<Item = Event>) {
        self.now.monotonic_us += 1000;
        self.server.begin_round();
        events.into_iter().for_each(|event| self.server.handle(self.now, event));
        self.server.end_round(self.now);
        let mut effects = Vec::new();
        self.server.poll_effects(&mut effects);
        for effect in effects {
            match effect {
                Effect::Persist { db, step, bytes, .. } => {
                    self.steps.push((db, step.number, bytes.len()));
                }
                Effect::Open { db, .. } => self.opening.push(db),
                Effect::ReadConfiguration { .. } => self.is_reading = true,
                Effect::Listen { target, .. } => self.listening.push(target),
                Effect::CommandReply { id, reply } => self.replies.push((id, reply)),
                Effect::Send { head, body, .. } => {
                    self.received.extend_from_slice(&head);
                    self.received.extend_from_slice(&body);
                }
                Effect::Disconnect { session, .. } => self.closed.push(session),
                Effect::Work { id, work, .. } => self.work.push((id, work)),
                Effect::Say { id, word } => drop(self.said.insert(id, word)),
                _ => {}
            }
        }
    }

    fn open(&mut self, file: &[u8]) {
        let db = self.opening.pop().expect("a file is to be opened");
        self.round([Event::Opened { db, result: load(file) }]);
    }

    fn read(&mut self, config: &str) {
        assert!(std::mem::take(&mut self.is_reading), "a configuration is to be read");
        self.round([Event::ConfigurationRead { result: Ok(config.as_bytes().to_vec()) }]);
    }

    /// All steps so far are on the disk, if it has room for them.
    fn persist(&mut self) {
        let room = self.room;
        let persisted = |(db, step, len)| {
            let no_room = || "No space left on device".to_owned();
            let result = (len <= room).then(Default::default).ok_or_else(no_room);
            Event::Persisted { db, step, result }
        };
        let events: Vec<Event> =
            std::mem::take(&mut self.steps).into_iter().map(persisted).collect();
        self.round(events);
    }

    /// Lets time pass, with a disk that answers.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now.monotonic_us += 100_000;
            self.persist();
        }
    }

    /// Helpers are done with what they were given.
    fn do_work(&mut self) {
        let said = std::mem::take(&mut self.said);
        let done = |(id, work): (WorkId, Work)| {
            let word = said.get(&id).copied().unwrap_or(Word::GoOn);
            let finished = Box::new(work.run_watched(Some(&Watcher::new(move || word))));
            Event::WorkDone { id, finished }
        };
        let events: Vec<Event> = std::mem::take(&mut self.work).into_iter().map(done).collect();
        self.round(events);
    }

    fn command(&mut self, number: u64, name: &str, args: &[&str]) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.round([Event::Command { id: CommandId(number), name: name.to_owned(), args }]);
    }

    /// Of two writers one asks while the other one's last transaction is under way.
    fn write(&mut self, writers: [SessionId; 2], number: u32) {
        let bytes = transact(number, &insert(&format!("p{number}"))).into_bytes();
        let session = writers[number as usize % 2];
        self.round([Event::Message { session, bytes }]);
    }

    fn connect(&mut self, number: u64) -> SessionId {
        let (session, name) = (SessionId(number), format!("unix#{number}"));
        let remote = RemoteId(u64::MAX);
        self.round([Event::Accepted { session, remote, name, client: None }]);
        session
    }
}

/// Whoever needs all to be decided has a turn between two batches, though somebody waits to write whenever one is
/// decided.
#[test]
fn a_leader_under_load_without_a_pause_answers_who_waits_for_a_batch() {
    let long: Vec<String> = (0..200).map(|n| insert(&format!("long {n}"))).collect();
    let wait = r#"{"op":"wait","timeout":0,"table":"Port","where":[["name","==","none"]],"columns":["name"],"until":"==","rows":[{"name":"none"}]}"#;
    let requests = [
        r#"{"id":9,"method":"get_schema","params":["Net"]}"#.to_owned(),
        r#"{"id":9,"method":"weir_sync","params":["Net",1000]}"#.to_owned(),
        r#"{"id":9,"method":"monitor","params":["Net","m",{"Port":{"columns":["name"]}}]}"#
            .to_owned(),
        transact(9, wait),
        transact(9, &long.join(",")),
    ];
    for request in requests {
        let config = Config { databases: vec![PATH.to_owned()], ..Config::default() };
        let mut stand = Stand::new(config);
        stand.open(&alone());
        stand.pass(5000);
        stand.server.set_step_cost_max(1000);
        let [first, second, other] = [1, 2, 3].map(|number| stand.connect(number));
        stand.write([first, second], 1);
        let bytes = request.clone().into_bytes();
        stand.round([Event::Message { session: other, bytes }]);
        stand.received.clear();
        for n in 2..6 {
            stand.write([first, second], n);
            stand.persist();
            stand.do_work();
        }
        let received = String::from_utf8_lossy(&stand.received);
        assert!(received.contains(r#""id":9"#), "{request:.100}: {received}");
    }
}

/// A leader that is refused leads no more, and the next one is asked for all of it again, at once.
#[test]
fn a_batch_for_which_there_is_no_room_is_written_as_several() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    stand.open(&alone());
    stand.pass(5000);
    stand.room = 100_000;
    let writers: Vec<SessionId> = (1..=40).map(|number| stand.connect(number)).collect();
    let asks = |(n, session): (u32, &SessionId)| {
        let name = format!("{n}{}", "x".repeat(4000));
        Event::Message { session: *session, bytes: transact(n, &insert(&name)).into_bytes() }
    };
    stand.round((1..).zip(&writers).map(asks));
    stand.pass(10_000);
    let received = String::from_utf8_lossy(&stand.received);
    assert_eq!(received.matches(r#"[{"uuid":["#).count(), writers.len(), "{received}");
}

/// What has run on a snapshot while a batch was under way is not begun anew when that has taken effect, or it would never
/// be done where others write all the time.
#[test]
fn a_long_transaction_under_a_lock_is_done_beside_writers_without_a_pause() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    stand.open(&alone());
    stand.pass(5000);
    stand.server.set_step_cost_max(100);
    let [first, second, holder] = [1, 2, 3].map(|number| stand.connect(number));
    let bytes = br#"{"id":8,"method":"lock","params":["l"]}"#.to_vec();
    stand.round([Event::Message { session: holder, bytes }]);
    stand.write([first, second], 1);
    let long: Vec<String> = (0..3000).map(|n| insert(&format!("long {n}"))).collect();
    let operations = format!(r#"{{"op":"assert","lock":"l"}},{}"#, long.join(","));
    let bytes = transact(99, &operations).into_bytes();
    stand.round([Event::Message { session: holder, bytes }]);
    stand.received.clear();
    for n in 2..12 {
        stand.persist();
        // Somebody waits for the tables while a helper has them, and has a batch under way when the helper is done.
        stand.write([first, second], n);
        stand.do_work();
    }
    let received = String::from_utf8_lossy(&stand.received);
    assert!(received.contains(r#""id":99"#), "{received}");
}

/// Some request waits whenever a batch is decided, so that the next batch begins at once.
#[test]
fn a_leader_under_load_without_a_pause_listens_where_it_is_told_to() {
    let config = Config {
        databases: vec![PATH.to_owned()],
        remotes: vec!["db:Net,Manager,target".to_owned()],
        ..Config::default()
    };
    let mut stand = Stand::new(config);
    stand.open(&alone());
    stand.pass(5000);
    let writers = [1, 2].map(|number| stand.connect(number));
    stand.write(writers, 1);
    assert_eq!(stand.steps.len(), 1, "it leads");
    stand.command(1, "ovsdb-server/add-remote", &["punix:/other"]);
    assert_eq!(stand.replies, [(CommandId(1), Ok(String::new()))]);
    for n in 2..5 {
        stand.write(writers, n);
        stand.persist();
        assert_eq!(stand.steps.len(), 1, "the next batch has begun");
    }
    assert_eq!(stand.listening, ["punix:/other"]);
    let received = String::from_utf8_lossy(&stand.received);
    assert_eq!(received.matches(r#""error":null"#).count(), 3, "{received}");
}

/// Clients know of it, and that it has no tables (ovsdb-server(5)).
#[test]
fn a_server_that_has_not_joined_has_a_row_and_a_name() {
    let mut stand = Stand::new(Config::default());
    let [aware, unaware] = [1, 2].map(|number| stand.connect(number));
    let ask = |stand: &mut Stand, session, request: &str| {
        stand.received.clear();
        stand.round([Event::Message { session, bytes: request.as_bytes().to_vec() }]);
        String::from_utf8_lossy(&stand.received).into_owned()
    };
    let list = r#"{"id":1,"method":"list_dbs","params":[]}"#;
    ask(&mut stand, aware, r#"{"id":0,"method":"set_db_change_aware","params":[true]}"#);
    assert!(ask(&mut stand, unaware, list).contains(r#"["_Server"]"#));
    stand.command(1, "ovsdb-server/add-db", &[PATH]);
    stand.open(&joining());
    assert_eq!(std::mem::take(&mut stand.replies), [(CommandId(1), Ok(String::new()))]);
    assert_eq!(std::mem::take(&mut stand.closed), [unaware], "it knows of fewer databases");
    assert!(ask(&mut stand, aware, list).contains(r#"["Net","_Server"]"#));
    let select = r#"{"id":2,"method":"transact","params":["_Server",{"op":"select","table":"Database",
        "where":[["name","==","Net"]],"columns":["model","connected","leader","schema","index","cid","sid"]}]}"#;
    let row = ask(&mut stand, aware, select);
    let (cid, sid) = (id(0), id(1));
    for member in [
        r#""model":"clustered""#,
        r#""connected":false"#,
        r#""leader":false"#,
        r#""schema":["set",[]]"#,
        r#""index":["set",[]]"#,
        &format!(r#""cid":["uuid","{cid}"]"#),
        &format!(r#""sid":["uuid","{sid}"]"#),
    ] {
        assert!(row.contains(member), "{member}: {row}");
    }
    let schema = ask(&mut stand, aware, r#"{"id":3,"method":"get_schema","params":["Net"]}"#);
    assert!(schema.contains("it has not completed joining its cluster"), "{schema}");

    let unaware = stand.connect(3);
    ask(&mut stand, unaware, list);
    stand.command(1, "ovsdb-server/remove-db", &["Net"]);
    assert_eq!(stand.replies, [(CommandId(1), Ok(String::new()))]);
    assert_eq!(stand.closed, [unaware], "it knows of more databases");
    assert!(ask(&mut stand, aware, list).contains(r#"["_Server"]"#));
    assert!(ask(&mut stand, aware, select).contains(r#"{"rows":[]}"#));
}

/// A file that is opened once more is none of the configuration that is to be read.
#[test]
fn a_member_that_is_opened_again_does_not_end_a_reload() {
    let mut stand =
        Stand::new(Config { config_file: Some(CONFIG.to_owned()), ..Config::default() });
    stand.read(&format!(r#"{{"remotes":{{}},"databases":{{"{PATH}":null}}}}"#));
    let db = stand.opening[0];
    stand.open(&joining());
    // What is on the disk of its file nobody knows; it has promised nothing.
    stand.round([Event::FileSuspect { db }]);
    stand.pass(6000);
    stand.command(1, "ovsdb-server/reload", &[]);
    stand.open(&joining());
    assert_eq!(stand.replies, []);
    stand.read("nonsense");
    let failed = "Configuration failed.  See the log file for details.";
    assert_eq!(stand.replies, [(CommandId(1), Err(failed.to_owned()))]);
}

#[test]
fn a_leader_under_load_without_a_pause_keeps_changes_of_its_files_or_not() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    stand.open(&alone());
    stand.pass(5000);
    let session = stand.connect(1);
    let bytes = transact(1, &insert("p")).into_bytes();
    stand.round([Event::Message { session, bytes }]);
    assert_eq!(stand.steps.len(), 1, "it leads");
    stand.command(1, "weir/standalone-history", &["off"]);
    assert_eq!(stand.replies, [(CommandId(1), Ok(String::new()))]);
}

#[test]
fn a_server_that_becomes_a_backup_leaves_its_clustered_databases_alone() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    stand.open(&alone());
    stand.pass(5000);
    stand.command(1, "ovsdb-server/set-active-ovsdb-server", &["tcp:127.0.0.1:6640"]);
    stand.command(2, "ovsdb-server/connect-active-ovsdb-server", &[]);
    stand.command(3, "ovsdb-server/sync-status", &[]);
    let status = stand.replies.pop().expect("an answer");
    let done = [1, 2].map(|n| (CommandId(n), Ok(String::new())));
    assert_eq!(stand.replies, done);
    assert_eq!(status, (CommandId(3), Ok("state: active\n".to_owned())));
}

/// What the cluster decides on is undone until it has, and takes effect behind what a helper has seen.
#[test]
fn a_long_wait_at_a_leader_is_woken_by_what_took_effect_while_a_helper_read() {
    // The helper is done when the write has taken effect, or when that is under way.
    for is_decided in [true, false] {
        let config = Config { databases: vec![PATH.to_owned()], ..Config::default() };
        let mut stand = Stand::new(config);
        stand.open(&alone());
        stand.pass(5000);
        let [waiter, writer] = [1, 2].map(|number| stand.connect(number));
        stand.work.clear();
        stand.server.set_step_cost_max(0);
        let wait = r#"{"op":"wait","table":"Port","where":[],"columns":["name"],"until":"==",
            "rows":[{"name":"p"}]}"#;
        let bytes = transact(7, wait).into_bytes();
        stand.round([Event::Message { session: waiter, bytes }]);
        let [read] = std::mem::take(&mut stand.work).try_into().expect("a helper reads");
        stand.server.set_step_cost_max(100_000);
        let bytes = transact(8, &insert("p")).into_bytes();
        stand.round([Event::Message { session: writer, bytes }]);
        assert_eq!(stand.steps.len(), 1, "it leads");
        if is_decided {
            stand.persist();
        }
        stand.work.push(read);
        stand.do_work();
        // It rests before it runs again.
        stand.pass(5000);
        stand.do_work();
        let received = String::from_utf8_lossy(&stand.received);
        assert!(received.contains(r#""id":8"#), "{received}");
        assert!(received.contains(r#""id":7"#), "decided first: {is_decided}: {received}");
    }
}

/// Until then there is no database to remove, and behind that there would be one.
#[test]
fn a_member_whose_file_is_opened_again_is_removed_when_that_is_open() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    let db = stand.opening[0];
    stand.open(&joining());
    stand.round([Event::FileSuspect { db }]);
    stand.pass(6000);
    assert_eq!(stand.opening.len(), 1, "its file is to be opened once more");
    stand.command(1, "ovsdb-server/remove-db", &["Net"]);
    assert_eq!(stand.replies, []);
    stand.open(&joining());
    assert_eq!(std::mem::take(&mut stand.replies), [(CommandId(1), Ok(String::new()))]);
    stand.command(2, "ovsdb-server/remove-db", &["Net"]);
    let none = "Failed to find the database.";
    assert_eq!(stand.replies, [(CommandId(2), Err(none.to_owned()))]);
}

/// Nobody knows when there is a leader, and what none has been asked for is not made under the lock by then.
#[test]
fn a_lock_passes_what_no_leader_has_been_asked_for() {
    let mut stand = Stand::new(Config { databases: vec![PATH.to_owned()], ..Config::default() });
    stand.open(&without_leader());
    let [owner, next] = [1, 2].map(|number| stand.connect(number));
    let asks = |method: &str| format!(r#"{{"id":1,"method":"{method}","params":["l"]}}"#);
    let under = transact(2, &format!(r#"{{"op":"assert","lock":"l"}},{}"#, insert("p")));
    for request in [asks("lock"), under, asks("unlock")] {
        stand.round([Event::Message { session: owner, bytes: request.into_bytes() }]);
    }
    stand.received.clear();
    stand.round([Event::Message { session: next, bytes: asks("lock").into_bytes() }]);
    let received = String::from_utf8_lossy(&stand.received).into_owned();
    assert!(received.contains(r#""locked":true"#), "{received}");
}
