//! One of those who watch is a replica as client libraries have it (`weir_upstream::follower`): it
//! wants some of the rows, and others now and then.

use weir_data::{Uuid, UuidSource};
use weir_server::event::Event;
use weir_upstream::Input;
use weir_upstream::follower::{Columns, Condition, Follower, Model, Output, Wanted};
use weir_upstream::remotes::Remotes;
use weir_upstream::session::Options;

use crate::checks::{COUNTER, REGISTERS, Row, must, register, same};
use crate::clients::Client;
use crate::world::World;

/// Which rows are wanted.
#[derive(Clone, Debug)]
enum Wish {
    All,
    Nothing,
    /// What clients have written once.
    Written,
    /// The row that counts those, and a register.
    Counted(String),
    /// Rows with a number above this one.
    Above(u64),
}

impl Wish {
    fn condition(&self) -> Condition {
        let clause = |column: &str, function: &str, value: weir_json::Value| {
            weir_json::Value::Array(vec![column.into(), function.into(), value])
        };
        match self {
            Self::All => Condition::All,
            Self::Nothing => Condition::Any(vec![]),
            Self::Written => Condition::Any(vec![clause("n", "==", 0.into())]),
            Self::Counted(register) => Condition::Any(vec![
                clause("name", "==", COUNTER.into()),
                clause("name", "==", register.as_str().into()),
            ]),
            Self::Above(n) => {
                let n = i64::try_from(*n).expect("a small number");
                Condition::Any(vec![clause("n", ">", n.into())])
            }
        }
    }

    fn matches(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Written => row.n == 0,
            Self::Counted(register) => row.name == COUNTER || row.name == *register,
            Self::Above(n) => row.n > *n,
        }
    }
}

/// What leads the dialogue of such a watcher.
pub(crate) struct Following {
    follower: Follower,
    versions: UuidSource,
    /// What was wanted under each number.
    wanted: Vec<Wish>,
    /// The number that the rows are of, if there are some.
    told: Option<u64>,
    /// When the last message to the server arrives there.
    arrives_us: u64,
}

impl Following {
    pub(crate) fn new() -> Self {
        let columns = ["name", "n"].map(str::to_owned).into_iter().collect();
        let all = ["Item", "List", "V"].map(|table| (table.to_owned(), Columns::All));
        let tables = std::iter::once(("T".to_owned(), Columns::These(columns))).chain(all);
        let wanted = Wanted {
            database: "Sim".into(),
            // Whichever answers.
            remotes: Remotes::parse("tcp:one:1,tcp:other:1"),
            leader_only: false,
            options: Options { probe_ms: 5000, max_backoff_ms: 1000 },
            model: Model::Replica(tables.collect()),
        };
        Self {
            follower: Follower::new(wanted, 0),
            versions: UuidSource::new([1, 2, 3, 4]),
            wanted: vec![Wish::All],
            told: None,
            arrives_us: 0,
        }
    }

    /// The state that the rows are of, if they are of one that others know.
    fn state(&self) -> Option<String> {
        let state = self.follower.last();
        (state != Uuid::ZERO && self.told.is_some()).then(|| state.to_string())
    }

    /// The rows that it has of all that there are.
    fn of<'a>(
        &self,
        rows: impl Iterator<Item = &'a Row> + Clone,
    ) -> impl Iterator<Item = &'a Row> + Clone {
        let wish = self.told.map_or(&Wish::Nothing, |number| {
            &self.wanted[usize::try_from(number).expect("a number of few")]
        });
        rows.filter(|row| wish.matches(row))
    }

    /// Whether the rows are all that there are.
    fn has_all(&self) -> bool {
        let wish = self.told.and_then(|number| self.wanted.get(usize::try_from(number).ok()?));
        matches!(wish, Some(Wish::All))
    }

    /// The rows that it must have when all is settled.
    pub(crate) fn settled<'a>(
        &self,
        rows: impl Iterator<Item = &'a Row> + Clone,
    ) -> impl Iterator<Item = &'a Row> + Clone {
        assert_eq!(self.told, Some(self.wanted.len() as u64 - 1), "what is wanted last holds");
        self.of(rows)
    }
}

impl World {
    fn following(&mut self, number: usize) -> &mut Following {
        self.clients[number].following.as_mut().expect("the watcher is a replica")
    }

    /// Time has passed for a replica.
    pub(crate) fn replica_goes_on(&mut self, number: usize) {
        let now_us = self.now_us;
        let due_us = self.following(number).follower.next_wakeup_us();
        if due_us.is_some_and(|due_us| due_us <= now_us) {
            self.replica_input(number, Input::Tick);
        }
        self.move_watcher(number);
        if !self.is_over && self.rng.chance(5) {
            self.want_others(number);
        }
    }

    fn want_others(&mut self, number: usize) {
        let wish = match self.rng.below(6) {
            0 => Wish::All,
            1 => Wish::Nothing,
            2 => Wish::Written,
            3 => Wish::Above(self.rng.below(500) as u64),
            _ => Wish::Counted(register(self.rng.below(REGISTERS))),
        };
        let following = self.following(number);
        let changes = [("T".to_owned(), wish.condition())];
        let mut out = Vec::new();
        let number_of = following.follower.set_conditions(changes.into(), &mut out);
        if number_of == following.wanted.len() as u64 {
            following.wanted.push(wish);
        }
        self.replica_does(number, out, &[]);
    }

    /// Something has happened to a replica's connection.
    pub(crate) fn replica_input(&mut self, number: usize, input: Input<'_>) {
        let (now_us, mut out) = (self.now_us, Vec::new());
        let Following { follower, versions, .. } = self.following(number);
        follower.handle(now_us, input, versions, &mut out);
        let message = if let Input::Message(message) = input { message } else { &[] };
        self.replica_does(number, out, message);
    }

    fn replica_does(&mut self, number: usize, out: Vec<Output>, message: &[u8]) {
        for output in out {
            match output {
                Output::Connect { .. } => {
                    self.clients[number].session = self.open_session();
                    let is_open = self.clients[number].session.is_some();
                    let refused = Input::Down(Some("Connection refused"));
                    self.replica_input(number, if is_open { Input::Up } else { refused });
                }
                Output::Send(message) => self.send_for_replica(number, message),
                Output::Close => {
                    if let Some((n, _, session)) = self.clients[number].session.take() {
                        self.event_at(self.now_us, n, Event::Closed { session, error: None });
                    }
                }
                Output::News(news) => {
                    let Self { clients, checks, .. } = self;
                    let client = &mut clients[number];
                    let following = client.following.as_mut().expect("the watcher is a replica");
                    if news.state.id != Uuid::ZERO {
                        checks.resume.told(self.now_us, &news.state.id.to_string());
                    }
                    let message = message.to_vec();
                    let taken = client.replica.take_news(*news, message, &mut following.versions);
                    must("replicas", taken);
                }
                Output::Conditions { number: told, whole } => {
                    assert!(whole.is_empty(), "every server has all columns: {whole:?}");
                    let before = self.following(number).told.replace(told);
                    self.checks.counts.conditions += u64::from(before != Some(told));
                    self.note(number, &format!("watcher {number} has rows of {told}"));
                }
                Output::Log { text, .. } => {
                    self.note(number, &format!("watcher {number}: {text}"));
                }
                output => panic!("{output:?}"),
            }
        }
        // What rows are of is told behind them.
        let client = &self.clients[number];
        let has_all = client.following.as_ref().is_some_and(|following| following.has_all());
        must("replicas", client.replica.is_whole(has_all));
    }

    /// Messages on one connection stay in order.
    fn send_for_replica(&mut self, number: usize, bytes: Vec<u8>) {
        let delay_us = 20 + self.rng.below(200) as u64;
        let at_us = (self.now_us + delay_us).max(self.following(number).arrives_us + 1);
        self.following(number).arrives_us = at_us;
        if let Some((n, _, session)) = self.clients[number].session {
            self.event_at(at_us, n, Event::Message { session, bytes });
        }
    }

    /// A watcher has come to a state: at the same one, others have the same rows, as far as they
    /// want them.
    pub(crate) fn compare_watchers(&mut self) {
        if !self.rng.chance(10) {
            return;
        }
        let replica = self.clients.iter().find_map(|client| {
            let following = client.following.as_ref()?;
            Some((client, following, following.state()?))
        });
        let Some((replica, following, state)) = replica else { return };
        let is_there = |other: &&Client| other.following.is_none() && other.state() == state;
        let Some(other) = self.clients.iter().find(is_there) else { return };
        let expected = following.of(other.replica.rows());
        let who = format!("watcher {}, of {:?} at {state},", replica.number, following.told);
        must("replicas", same(&who, expected, replica.replica.rows()));
        self.checks.counts.compared += 1;
    }

    /// What a replica was sent.
    pub(crate) fn replica_hears(&mut self, number: usize, message: &[u8]) {
        self.replica_input(number, Input::Message(message));
        self.compare_watchers();
    }
}
