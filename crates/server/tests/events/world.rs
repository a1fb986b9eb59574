//! The server, its shell, its clients and everything around them; one event at a time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir_server::Config;
use weir_server::event::{CommandId, DbId, Event, RemoteId, SessionId};
use weir_server::work::Word;

use crate::census::Census;
use crate::chance::Chance;
use crate::client::{Asked, Client, Kind, Order};
use crate::requests::{CHANNEL, Speaker};
use crate::schemas::{self, CONFIGURATION, DATABASES};
use crate::shell::{Job, PATH, Shell, Told};
use crate::source::{self, Source};

/// Clients at the same time.
const CLIENTS_MAX: usize = 7;
/// Who has so much unanswered says nothing more.
const ASKED_MAX: usize = 14;
/// More effects than this without the end of a round never end.
const EFFECTS_MAX: usize = 20_000;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Say,
    Round,
    Flush,
    Disk,
    Helper,
    Work,
    Open,
    Look,
    Read,
    Time,
    Connect,
    Leave,
    Desert,
    Stick,
    Slow,
    Fail,
    Cost,
    Command,
    Source,
    Reach,
    Noise,
}

/// What kind of run it is.
#[derive(Clone, Copy)]
pub(crate) struct Profile {
    pub(crate) ports_max: usize,
    pub(crate) text_len: usize,
    pub(crate) has_configuration: bool,
    pub(crate) has_source: bool,
    /// Files and helpers are as slow as can be.
    is_slow: bool,
}

impl Profile {
    pub(crate) fn of(chance: &mut Chance) -> Self {
        // Replies of more than a megabyte come in pieces.
        let is_fat = chance.one_in(30);
        Self {
            ports_max: if is_fat { 40 } else { 4 + chance.below(20) },
            text_len: if is_fat { 300_000 } else { 1 },
            has_configuration: chance.one_in(3),
            has_source: chance.one_in(3),
            is_slow: chance.one_in(2),
        }
    }

    fn is_fat(self) -> bool {
        self.text_len > 1000
    }
}

/// A run.
pub(crate) struct World {
    pub(crate) shell: Shell,
    pub(crate) chance: Chance,
    pub(crate) profile: Profile,
    pub(crate) clients: Vec<Client>,
    pub(crate) census: Census,
    pub(crate) source: Source,
    /// Who has had a message handled in this round.
    spoken: BTreeSet<SessionId>,
    next_id: u64,
    next_command: u64,
    /// Commands that are not answered.
    pub(crate) commands: BTreeMap<CommandId, String>,
    /// Appends that others have overtaken so far.
    overtaken: BTreeMap<DbId, bool>,
    /// What happens is printed.
    is_traced: bool,
    /// The state of the server right before a configuration is read.
    watched: Option<(CommandId, Option<Value>)>,
}

impl World {
    pub(crate) fn start(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let profile = Profile::of(&mut chance);
        let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (name, path) in DATABASES {
            files.insert(path.to_owned(), schemas::file(name, profile.ports_max));
        }
        files.insert("/db/same.db".to_owned(), schemas::file("Net", profile.ports_max));
        files.insert("/db/bad.db".to_owned(), b"not a database".to_vec());
        let sync_from =
            (profile.has_source && !profile.has_configuration).then(|| source::TARGET.to_owned());
        let configuration = r#"{"remotes":{"punix:/sock":null,"ptcp:1":null},
            "databases":{"/db/net.db":null,"/db/two.db":null}}"#;
        files.insert(CONFIGURATION.to_owned(), configuration.as_bytes().to_vec());
        let remotes = ["punix:/sock", "ptcp:1", "db:Net,Manager,target"];
        let config = Config {
            remotes: remotes.map(str::to_owned).to_vec(),
            config_file: profile.has_configuration.then(|| CONFIGURATION.to_owned()),
            sync_active: chance.one_in(2),
            sync_from,
            ..Config::default()
        };
        let first = files.remove(PATH).expect("it is one of the databases");
        let shell = Shell::start_on_files(first, files, config);
        let mut world = Self {
            shell,
            chance,
            profile,
            clients: Vec::new(),
            census: Census::default(),
            source: Source::default(),
            spoken: BTreeSet::new(),
            next_id: 0,
            next_command: 1_000_000,
            commands: BTreeMap::new(),
            overtaken: BTreeMap::new(),
            is_traced: std::env::var_os("WEIR_EVENTS_TRACE").is_some(),
            watched: None,
        };
        if !profile.has_configuration {
            world.command("ovsdb-server/add-db", &["/db/two.db"]);
            world.round();
        }
        for _ in 0..3 {
            world.connect();
        }
        world.slow_down();
        if profile.is_fat() {
            world.shell.server.set_step_cost_max(0);
        }
        world
    }

    /// One event.
    pub(crate) fn step(&mut self) {
        let has_source = usize::from(self.profile.has_source);
        let is_slow = usize::from(self.profile.is_slow);
        let step = self.chance.weighted(&[
            (60, Step::Say),
            (26, Step::Round),
            (3, Step::Flush),
            (14 - 6 * is_slow, Step::Disk),
            (5 - 2 * is_slow, Step::Helper),
            (16 - 8 * is_slow, Step::Work),
            (3, Step::Open),
            (3, Step::Look),
            (2, Step::Read),
            (6, Step::Time),
            (2, Step::Connect),
            (1, Step::Leave),
            (1, Step::Desert),
            (3, Step::Stick),
            (1, Step::Slow),
            (1, Step::Fail),
            (1, Step::Cost),
            (4, Step::Command),
            (12 * has_source, Step::Source),
            (2, Step::Reach),
            (1, Step::Noise),
        ]);
        if self.is_traced {
            println!("{step:?}");
        }
        match step {
            Step::Say => self.say(),
            Step::Round => {
                self.round();
            }
            Step::Flush => {
                self.shell.server.flush_updates(self.shell.now);
                self.pump();
            }
            Step::Disk => self.disk(),
            Step::Helper => {
                let at = self.chance.below(8);
                self.shell.do_helper(at);
                self.pump();
            }
            Step::Work => {
                let at = self.chance.below(8);
                self.work(at);
            }
            Step::Open => {
                let at = self.chance.below(8);
                self.shell.do_open(at);
                self.pump();
            }
            Step::Look => {
                self.shell.do_look();
                self.pump();
            }
            Step::Read => self.read(),
            Step::Time => self.time(),
            Step::Connect => self.connect(),
            Step::Leave => self.leave(),
            Step::Desert => self.desert(),
            Step::Stick => self.stick(),
            Step::Slow => self.slow_down(),
            Step::Fail => self.fail(),
            Step::Cost => {
                let cost = *self.chance.pick(&[0, 0, 300, 1500, u64::MAX, 100_000]);
                self.shell.server.set_step_cost_max(cost);
            }
            Step::Command => self.admin(),
            Step::Source => self.follow(false),
            Step::Reach => self.reach(),
            Step::Noise => self.noise(),
        }
    }

    /// Executes effects, and looks at what they tell; how many there were.
    pub(crate) fn pump(&mut self) -> usize {
        self.told(Shell::pump)
    }

    /// Has effects executed, and looks at what they have told.
    fn told(&mut self, execute: impl FnOnce(&mut Shell) -> usize) -> usize {
        let count = execute(&mut self.shell);
        assert!(count < EFFECTS_MAX, "{count} effects at once");
        for told in std::mem::take(&mut self.shell.story) {
            self.heard(told);
        }
        for session in std::mem::take(&mut self.shell.disconnected) {
            self.census.note("disconnected by the server");
            self.forget(session);
        }
        count
    }

    fn heard(&mut self, told: Told) {
        match told {
            Told::Reply(id) => {
                let reply = self.shell.replies.remove(&id).expect("it has just come");
                let asked = self.commands.remove(&id);
                let asked = asked.unwrap_or_else(|| panic!("a second reply to {id:?}: {reply:?}"));
                self.census.note("admin command answered");
                if let Some((watched, state)) = &mut self.watched
                    && *watched == id
                {
                    let text = reply.unwrap_or_else(|error| panic!("{asked}: {error}"));
                    *state = serde_json::from_str(&text).ok();
                }
            }
            Told::Closed(path) => {
                let Some((_, Some(state))) = &self.watched else { return };
                let name = DATABASES.iter().find(|(_, of)| *of == path).map(|(name, _)| *name);
                let work = state["work"].as_array().into_iter().flatten();
                for work in work.filter(|work| work["database"].as_str() == name) {
                    match work["what"].as_str() {
                        Some("write") => self.census.note("database removed with a long write out"),
                        Some("read") => self.census.note("database removed with a long read out"),
                        _ => {}
                    }
                }
            }
        }
    }

    /// The end of a round, and what clients read then; how many effects there were.
    pub(crate) fn round(&mut self) -> usize {
        self.shell.tell_drained();
        let count = self.told(Shell::short_round);
        self.spoken.clear();
        self.read_messages();
        count
    }

    /// Clients read what has come for them, but for those that do not.
    fn read_messages(&mut self) {
        for client in &mut self.clients {
            if self.shell.stuck.contains(&client.session) {
                continue;
            }
            // A piece of a message is no message.
            for message in self.shell.whole_messages(client.session) {
                let name = client.session;
                if self.is_traced {
                    println!("  to {name:?}: {message:.600}");
                }
                let taken = client.take(&message, &mut self.census);
                taken.unwrap_or_else(|error| panic!("{name:?}: {error}: {message:.600}"));
            }
        }
    }

    /// The databases of a name that are open, which is what its requests have in common.
    fn order(&self, lane: &str) -> Order {
        let asked = lane.split(CHANNEL).next().expect("there is a first part");
        let of_name = |path: &String| {
            DATABASES.iter().any(|(name, of)| *name == asked && of == path)
                || asked == "Net" && path == "/db/same.db"
        };
        let open = self.shell.open.iter().filter(|(_, path)| of_name(path));
        (lane.to_owned(), open.map(|(db, _)| *db).collect())
    }

    fn say(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.chance.below(self.clients.len());
        let session = self.clients[at].session;
        let is_stuck = self.shell.stuck.contains(&session) && self.shell.has_received(session);
        if self.shell.stopped.contains(&session) || is_stuck || self.spoken.contains(&session) {
            return;
        }
        self.speak(at);
    }

    /// A client says something: it has not yet in this round.
    fn speak(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let session = client.session;
        if let Some(reply) = client.to_say.pop_front() {
            self.census.note("probe answered");
            self.spoken.insert(session);
            return self.shell.send(session, &reply);
        }
        if client.asked.len() >= ASKED_MAX {
            return;
        }
        let mut speaker = Speaker {
            chance: &mut self.chance,
            next_id: &mut self.next_id,
            ports_max: self.profile.ports_max,
            text_len: self.profile.text_len,
            may_be_big: !self.profile.is_fat(),
        };
        let message = speaker.message(client);
        if let Some(canceled) = &message.cancels {
            let asked = client.asked.iter_mut().filter(|asked| asked.id == *canceled);
            asked.for_each(|asked| asked.is_canceled = true);
        }
        client.is_aware = message.sets_aware.unwrap_or(client.is_aware);
        let text = message.text;
        if text.len() >= 1 << 20 {
            self.census.note("big message");
        }
        if let Some(id) = message.id {
            let order = message.lane.as_deref().map(|lane| self.order(lane));
            self.clients[at].ask(Asked {
                id,
                kind: message.kind,
                order,
                waits: message.waits,
                waits_forever: message.waits_forever,
                is_canceled: false,
                text: text.chars().take(400).collect(),
            });
        }
        self.spoken.insert(session);
        if self.is_traced {
            println!("from {session:?}: {text:.600}");
        }
        let was_stopped = self.shell.stopped.len();
        self.shell.send(session, &text);
        self.pump();
        if self.shell.stopped.len() > was_stopped {
            self.census.note("session not read for what it has queued");
        }
    }

    pub(crate) fn disk(&mut self) {
        let at = self.chance.below(4);
        let jobs = &self.shell.disk_jobs;
        // The file of a conversion that is about to end.
        let replaced = jobs.iter().find(|job| matches!(job, Job::Finish { sync: true, .. }));
        let replaced = replaced.map(Job::db);
        let waits_for = |db: DbId| {
            let mut asked = self.clients.iter().flat_map(|client| &client.asked);
            asked.any(|asked| {
                let is_of = |(_, dbs): &Order| dbs.contains(&db);
                matches!(asked.kind, Kind::Transact) && asked.order.as_ref().is_some_and(is_of)
            })
        };
        if replaced.is_some_and(waits_for) {
            self.census.note("conversion frozen with requests queued");
        }
        let appends = |job: &&Job| matches!(job, Job::Append { .. });
        let appending: BTreeSet<DbId> = jobs.iter().filter(appends).map(Job::db).collect();
        let waiting: usize = self.clients.iter().map(|client| client.asked.len()).sum();
        let is_refused = self.shell.disk_error.is_some();
        self.shell.do_disk(at);
        let left: BTreeSet<DbId> =
            self.shell.disk_jobs.iter().filter(appends).map(Job::db).collect();
        for db in &appending {
            if !left.contains(db) {
                if self.overtaken.remove(db) == Some(true) {
                    self.census.note("append answered while other databases commit");
                }
                appending.iter().filter(|other| *other != db).for_each(|other| {
                    self.overtaken.insert(*other, true);
                });
                if is_refused {
                    self.census.note("append refused");
                }
                if is_refused && waiting > 3 {
                    self.census.note("append refused with requests waiting behind it");
                }
            }
        }
        self.pump();
    }

    pub(crate) fn work(&mut self, at: usize) {
        if let Some((id, work)) = self.shell.work.get(at % self.shell.work.len().max(1)) {
            // A helper that is done does not listen any more.
            if self.shell.said.contains_key(id) && self.chance.one_in(3) {
                self.shell.said.remove(id);
            }
            let said = self.shell.said.get(id);
            match (format!("{work:?}").as_str(), said) {
                ("Write" | "Read" | "Try" | "Confirm" | "Change" | "Examine", Some(Word::Stop)) => {
                    self.census.note("work stopped for which nobody waits");
                }
                ("Write", Some(Word::Hurry)) => self.census.note("long write made way"),
                ("Write", _) => self.census.note("long write"),
                ("Read", _) => self.census.note("long read"),
                ("Try", _) => self.census.note("long write on a snapshot"),
                ("Confirm", _) => {
                    self.census.note("long write compared with much that it has missed");
                }
                ("Initial", _) => self.census.note("first rows by a helper"),
                ("Change", _) => self.census.note("conditions changed by a helper"),
                ("Mirror", _) => self.census.note("rows of a source by a helper"),
                ("Follow", _) => self.census.note("conversion followed by a helper"),
                _ => {}
            }
        }
        self.shell.do_work(at);
        self.pump();
    }

    /// A configuration has been read; right before it counts, the state of the server is noted.
    pub(crate) fn read(&mut self) {
        if self.shell.reading() > 0 {
            let id = self.command("weir/status", &[]);
            self.watched = Some((id, None));
            self.shell.do_read();
            self.pump();
            self.round();
            self.watched = None;
        }
    }

    fn time(&mut self) {
        let ms = *self.chance.pick(&[0, 1, 1, 1, 3, 3, 20, 20, 50, 50, 200, 200, 1000, 1000, 6000]);
        let us = self.chance.below(999) as u64;
        self.shell.now.monotonic_us += ms * 1000 + us;
        self.shell.now.wall_ms += ms as i64;
        self.round();
    }

    fn connect(&mut self) {
        let remotes: Vec<(RemoteId, String)> = self
            .shell
            .remotes
            .iter()
            .filter(|(_, target)| target.starts_with('p'))
            .map(|(remote, target)| (*remote, target.clone()))
            .collect();
        if remotes.is_empty() || self.clients.len() >= CLIENTS_MAX {
            return;
        }
        let (remote, target) = self.chance.pick(&remotes).clone();
        self.accept(remote, target.starts_with("punix"));
    }

    fn accept(&mut self, remote: RemoteId, is_local: bool) {
        let session = self.shell.accept(remote, if is_local { "unix" } else { "tcp:192.0.2.1" });
        let mut client = Client::new(session);
        // Others are disconnected whenever databases come and go.
        if !self.chance.one_in(5) {
            client.is_aware = true;
            client.expect_reply("\"aware\"");
            self.spoken.insert(session);
            let text = r#"{"id":"aware","method":"set_db_change_aware","params":[true]}"#;
            self.shell.send(session, text);
        }
        self.clients.push(client);
        self.pump();
    }

    fn leave(&mut self) {
        if self.clients.is_empty() || self.chance.one_in(2) {
            return;
        }
        let at = self.chance.below(self.clients.len());
        self.close(at);
    }

    /// A client leaves while helpers are at work for it.
    fn desert(&mut self) {
        if self.chance.one_in(2) {
            return;
        }
        let has_work = |of: &Client| self.shell.work_of.values().any(|other| *other == of.session);
        if let Some(at) = self.clients.iter().position(has_work) {
            self.census.note("session that left with work out");
            self.close(at);
        }
    }

    fn close(&mut self, at: usize) {
        let session = self.clients[at].session;
        let error = self.chance.one_in(2).then(|| "Connection reset by peer".to_owned());
        if !self.clients[at].asked.is_empty() {
            self.census.note("session that left with requests out");
        }
        self.shell.event(Event::Closed { session, error });
        self.forget(session);
        self.pump();
    }

    /// The shell has nothing to do with a session any more.
    fn forget(&mut self, session: SessionId) {
        self.clients.retain(|client| client.session != session);
        self.shell.forget(session);
        self.spoken.remove(&session);
    }

    /// A client reads no more, or again.
    fn stick(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let at = self.chance.below(self.clients.len());
        let client = &mut self.clients[at];
        let session = client.session;
        if self.shell.stuck.insert(session) {
            self.census.note("client that does not read");
        } else if !client.is_blocked && self.shell.has_received(session) && self.chance.one_in(2) {
            client.is_blocked = true;
            self.shell.event(Event::Blocked { session });
            self.pump();
        } else {
            self.unstick(at);
        }
    }

    pub(crate) fn unstick(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let session = client.session;
        self.shell.stuck.remove(&session);
        if std::mem::take(&mut client.is_blocked) {
            self.shell.event(Event::Drained { session });
        }
        self.pump();
        self.read_messages();
    }

    /// What is slow from now on, and what is not.
    fn slow_down(&mut self) {
        let is_slow = self.profile.is_slow;
        let chance = &mut self.chance;
        let shell = &mut self.shell;
        let mut toss = || is_slow || chance.one_in(2);
        shell.slow_work = toss();
        shell.slow_helper = toss();
        shell.slow_open = toss();
        shell.slow_read = toss();
        shell.slow_look = toss();
        shell.slow_finish = toss();
        shell.slow_disk = toss();
        shell.slow_files.clear();
        if !shell.slow_disk {
            shell.slow_files.insert(chance.pick(&DATABASES).1.to_owned());
        }
    }

    fn fail(&mut self) {
        let shell = &mut self.shell;
        shell.disk_error = self.chance.one_in(4).then_some("No space left on device");
        shell.sync_error = self.chance.one_in(4).then_some("Input/output error");
    }

    /// Runs an admin command.
    pub(crate) fn command(&mut self, name: &str, args: &[&str]) -> CommandId {
        self.next_command += 1;
        let id = CommandId(self.next_command);
        self.commands.insert(id, format!("{name} {args:?}"));
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.shell.event(Event::Command { id, name: name.to_owned(), args });
        id
    }

    fn admin(&mut self) {
        let names = ["Net", "Two", "Three", "Four", "_Server", "Nowhere"];
        let name = *self.chance.pick(&names);
        if self.chance.one_in(20) {
            let args: &[&str] = if self.chance.one_in(2) { &[] } else { &[name] };
            self.command("weir/delivery", args);
            self.command("weir/wait-delivered", &[name, "now", "all", "2"]);
            return;
        }
        if self.chance.one_in(30) {
            let switch = *self.chance.pick(&["on", "off", "x"]);
            self.command("weir/standalone-history", &[switch]);
            return;
        }
        if self.chance.one_in(12) {
            let column = *self.chance.pick(&["name", "n", "tags", "up", "speed", "x"]);
            let command = *self.chance.pick(&["index/add", "index/drop"]);
            self.command(command, &[name, "Port", column]);
            self.command("index/list", &[]);
            return;
        }
        let is_writing = |job: &Job| self.shell.open.get(&job.db()).map(String::as_str);
        let path = DATABASES.iter().find(|(of, _)| *of == name).map(|(_, path)| *path);
        let is_written = self.shell.disk_jobs.iter().any(|job| is_writing(job) == path);
        let target =
            *self.chance.pick(&["ptcp:2", "db:Two,Manager,target", "tcp:192.0.2.3:1", "x"]);
        let file = match self.chance.below(9) {
            at @ 0..3 => schemas::BAD_FILES[at],
            at => DATABASES[at % 4].1,
        };
        let on = *self.chance.pick(&["on", "off", "x"]);
        let (of_file, of_name, of_target) = ([file], [name], [target]);
        let (of_switch, logged) = ([on], ["Net:Port", on]);
        let prefix = "ovsdb-server/";
        let has_source = usize::from(self.profile.has_source);
        let rarely = usize::from(self.chance.one_in(60));
        let (command, args): (&str, &[&str]) = self.chance.weighted(&[
            (7, ("add-db", &of_file[..])),
            (3, ("remove-db", &of_name[..])),
            (4, ("compact", &of_name[..])),
            (3, ("compact", &[][..])),
            (1, ("list-dbs", &[][..])),
            (2, ("add-remote", &of_target[..])),
            (2, ("remove-remote", &of_target[..])),
            (1, ("list-remotes", &[][..])),
            (1, ("get-db-storage-status", &of_name[..])),
            (1, ("memory-trim-on-compaction", &of_switch[..])),
            (rarely, ("reconnect", &[][..])),
            (rarely, ("disable-monitor-cond", &[][..])),
            (rarely, ("file/column-diff-disable", &[][..])),
            (1, ("tlog-set", &logged[..])),
            (1, ("tlog-list", &[][..])),
            (2 * has_source, ("set-active-ovsdb-server", &[source::TARGET][..])),
            (4 * has_source, ("connect-active-ovsdb-server", &[][..])),
            (2 * has_source, ("disconnect-active-ovsdb-server", &[][..])),
            (has_source, ("set-sync-exclude-tables", &["Net:Item"][..])),
            (has_source, ("sync-status", &[][..])),
            (3, ("sample", &[][..])),
            (12 * usize::from(self.profile.has_configuration), ("reload", &[][..])),
        ]);
        match command {
            "sample" => return self.sample(),
            "reload" => self.configure(),
            "remove-db" | "compact" if is_written => {
                self.census.note("command about a database that is being written");
            }
            _ => {}
        }
        let args: Vec<&str> = args.to_vec();
        self.command(&format!("{prefix}{command}"), &args);
    }

    /// Looks at what only `weir/status` tells.
    fn sample(&mut self) {
        let id = self.command("weir/status", &[]);
        self.watched = Some((id, None));
        self.round();
        let Some((_, Some(state))) = self.watched.take() else { return };
        for db in state["databases"].as_array().into_iter().flatten() {
            let is_compacting = !db["file"]["compacting_ms"].is_null();
            if is_compacting && db["file"]["records"] != 0 {
                self.census.note("compaction with records behind the snapshot");
            }
        }
        self.command("memory/show", &[]);
    }

    /// Writes another configuration file.
    fn configure(&mut self) {
        let mut databases = Vec::new();
        for (_, path) in DATABASES {
            let config = match self.chance.below(8) {
                0..2 => continue,
                2 if self.profile.has_source => format!(
                    r#"{{"service-model":"active-backup","backup":true,"source":{{"{}":null}}}}"#,
                    source::TARGET
                ),
                3 => r#"{"service-model":"standalone"}"#.to_owned(),
                4 if self.chance.one_in(6) => r#"{"service-model":"clustered"}"#.to_owned(),
                _ => "null".to_owned(),
            };
            databases.push(format!(r#""{path}":{config}"#));
        }
        if self.chance.one_in(12) {
            databases.push(format!(r#""{}":null"#, self.chance.pick(&schemas::BAD_FILES)));
        }
        let more = [
            r#","ptcp:1":null"#,
            r#","ptcp:1":{"read-only":true}"#,
            r#","db:Net,Manager,target":null"#,
            "",
        ];
        let more = *self.chance.pick(&more);
        let text = format!(
            r#"{{"remotes":{{"punix:/sock":null{more}}},"databases":{{{}}}}}"#,
            databases.join(",")
        );
        let text = if self.chance.one_in(10) {
            self.census.note("configuration that cannot be read");
            "nonsense".to_owned()
        } else {
            text
        };
        self.shell.files.insert(CONFIGURATION.to_owned(), text.into_bytes());
    }

    /// Something happens between the server and its source.
    pub(crate) fn follow(&mut self, is_right: bool) {
        let writing = self.shell.disk_jobs.iter().any(|job| {
            let path = self.shell.open.get(&job.db());
            let is_of = |name: &str| {
                DATABASES.iter().any(|(of, at)| *of == name && path.is_some_and(|path| path == at))
            };
            matches!(job, Job::Append { .. }) && self.source.names().any(is_of)
        });
        if writing {
            self.census.note("message of a source while its database is written");
        }
        self.source.step(&mut self.shell, &mut self.chance, is_right);
        self.pump();
    }

    /// Somebody whom the server wants to reach is there, or not.
    pub(crate) fn reach(&mut self) {
        let Some((remote, ..)) = self.shell.reaching.pop() else { return };
        if self.chance.one_in(2) && self.clients.len() < CLIENTS_MAX + 2 {
            return self.accept(remote, false);
        }
        let error = self.chance.one_in(2).then(|| "Connection refused".to_owned());
        self.shell.event(Event::ConnectFailed { remote, error });
        self.pump();
    }

    /// What is no message.
    fn noise(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let session = self.chance.pick(&self.clients).session;
        if self.spoken.contains(&session) || self.shell.stopped.contains(&session) {
            return;
        }
        match self.chance.below(12) {
            0 => {
                let error = "invalid character".to_owned();
                self.shell.event(Event::BadStream { session, error });
            }
            1 => {
                self.spoken.insert(session);
                self.shell.event(Event::TooLong { session, bytes: 1 << 30 });
                let outline = b"{\"method\":\"x\",\"params\":[]}".to_vec();
                self.shell.event(Event::Refused { session, outline, bytes: 1 << 30 });
            }
            2 => self.shell.event(Event::Idle),
            _ => self.shell.event(Event::Activity { session }),
        }
        self.pump();
    }
}
