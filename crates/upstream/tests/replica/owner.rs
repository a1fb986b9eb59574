//! The owner of a replica, and the connection to the server: applies whatever is told, which must
//! fit, and compares its rows with what the server had.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use weir_data::{AtomRef, ColumnId, Datum, Edit, Row as FullRow, TableSchema, Uuid, UuidSource};
use weir_upstream::Input;
use weir_upstream::follower::{Columns, Condition, Follower, Model, Output, Wanted};
use weir_upstream::news::{News, Rows as ToldRows};
use weir_upstream::remotes::Remotes;
use weir_upstream::session::Options;

use crate::server::{Kind, NAME, Row, Rows, Server, Shown, State};

/// What the owner wants of the table `T`: one column is not there always, and conditions may look
/// at another one, which is not asked for.
const OF_T: [&str; 2] = ["x", "z"];

pub(crate) type Wishes = BTreeMap<String, Condition>;

pub(crate) struct Owner {
    follower: Follower,
    now_us: u64,
    versions: UuidSource,
    pub(crate) server: Server,
    /// What server there is at the next connection.
    pub(crate) next_kind: Kind,
    is_connecting: bool,
    is_connected: bool,
    /// Requests on their way.
    requests: VecDeque<Value>,
    rows: Rows,
    /// What was wanted under each number.
    wanted: Vec<Wishes>,
    /// The number of which the rows are, and the tables that are whole.
    told: Option<(u64, Vec<String>)>,
    /// The rows were asked for of a server that knows no conditions.
    is_oldest: bool,
    refused: Option<u64>,
    /// The state of the server that the rows are of is not before this one.
    seen: usize,
    /// How often following was resumed from a state under older conditions.
    pub(crate) gone_back: usize,
    /// How many times other conditions came to hold.
    pub(crate) reached: usize,
}

impl Owner {
    pub(crate) fn new(kind: Kind) -> Self {
        let names = OF_T.map(str::to_owned).into_iter().collect();
        let tables = [
            ("T".to_owned(), Columns::These(names)),
            ("U".to_owned(), Columns::All),
            ("W".to_owned(), Columns::All),
        ];
        let wanted = Wanted {
            database: NAME.into(),
            remotes: Remotes::parse("tcp:h:1"),
            leader_only: false,
            options: Options { probe_ms: 0, max_backoff_ms: 1000 },
            model: Model::Replica(tables.into_iter().collect()),
        };
        Self {
            follower: Follower::new(wanted, 0),
            now_us: 1_000_000,
            versions: UuidSource::new([1, 2, 3, 4]),
            server: Server::new(kind),
            next_kind: kind,
            is_connecting: false,
            is_connected: false,
            requests: VecDeque::new(),
            rows: Rows::new(),
            wanted: vec![Wishes::new()],
            told: None,
            is_oldest: false,
            refused: None,
            seen: 0,
            gone_back: 0,
            reached: 0,
        }
    }

    /// Time passes until the follower has something to do; a connection that it makes is made.
    pub(crate) fn tick(&mut self) {
        let Some(at_us) = self.follower.next_wakeup_us() else { return };
        self.now_us = self.now_us.max(at_us);
        self.give(Input::Tick);
        if std::mem::take(&mut self.is_connecting) {
            self.server.kind = self.next_kind;
            self.is_connected = true;
            self.refused = None;
            self.give(Input::Up);
        }
    }

    /// The connection ends, with all that is on its way.
    pub(crate) fn lose(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.requests.clear();
            self.server.disconnect();
            self.give(Input::Down(None));
        }
    }

    /// The server answers what comes next.
    pub(crate) fn serve(&mut self) {
        if let Some(request) = self.requests.pop_front() {
            self.server.serve(&request);
        }
    }

    /// The owner hears what comes next.
    pub(crate) fn hear(&mut self) {
        if !self.server.said.is_empty() {
            let message = self.server.said.remove(0).to_string();
            self.give(Input::Message(message.as_bytes()));
            self.check();
        }
    }

    pub(crate) fn want(&mut self, changes: Wishes) {
        let mut wishes = self.wanted.last().expect("the first ones").clone();
        wishes.extend(changes.clone());
        let is_new = changes.iter().any(|(table, condition)| {
            let before = self.wanted.last().and_then(|wishes| wishes.get(table));
            before.unwrap_or(&Condition::All) != condition
        });
        if is_new {
            self.wanted.push(wishes);
        }
        let mut out = Vec::new();
        let number = self.follower.set_conditions(changes, &mut out);
        assert_eq!(number, self.newest(), "a number each");
        self.take(out);
        self.check();
    }

    fn newest(&self) -> u64 {
        self.wanted.len() as u64 - 1
    }

    /// All that is on its way arrives, and nothing else happens: the rows are what was wanted last.
    /// An owner whose conditions no server takes gives up on them.
    pub(crate) fn settle(&mut self) {
        self.follow();
        if !self.follower.is_following() {
            assert!(self.refused.is_some(), "nothing else keeps it from following");
            let all = ["T", "U", "W"].map(|table| (table.to_owned(), Condition::All));
            self.want(all.into_iter().collect());
            self.follow();
        }
        self.server.flush();
        self.exchange();
        assert!(self.follower.is_following() && self.is_connected);
        self.seen = self.server.states.len() - 1;
        self.check();
        let (told, _) = self.told.as_ref().expect("rows have come");
        let is_refused = self.refused == Some(self.newest());
        assert_eq!(
            *told != self.newest(),
            is_refused,
            "what is wanted holds, unless it is refused"
        );
    }

    /// Some attempts to follow, until all is told.
    pub(crate) fn follow(&mut self) {
        self.exchange();
        for _ in 0..10 {
            if self.follower.is_following() {
                return;
            }
            self.tick();
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        for _ in 0..1000 {
            if self.requests.is_empty() && self.server.said.is_empty() {
                return;
            }
            self.serve();
            self.hear();
        }
        panic!("the two go on talking for ever");
    }

    fn give(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.follower.handle(self.now_us, input, &mut self.versions, &mut out);
        let message = if let Input::Message(message) = input { message } else { &[] };
        for output in out {
            match output {
                Output::News(news) => self.apply(*news, message.to_vec()),
                output => self.take(vec![output]),
            }
        }
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Connect { .. } => self.is_connecting = true,
                Output::Send(message) => {
                    let message: Value = serde_json::from_slice(&message).expect("JSON");
                    self.requests.push_back(message);
                }
                Output::Close => {
                    self.is_connected = false;
                    self.requests.clear();
                    self.server.disconnect();
                }
                Output::Conditions { number, whole } => {
                    let before = self.told.replace((number, whole)).map(|(number, _)| number);
                    self.refused = self.refused.filter(|refused| *refused != number);
                    self.gone_back += usize::from(before > Some(number));
                    self.reached += usize::from(before < Some(number));
                    self.is_oldest = self.server.kind == Kind::Oldest;
                }
                Output::Refused { number, .. } => self.refused = Some(number),
                Output::Log { .. } => {}
                output => panic!("{output:?}"),
            }
        }
    }

    /// What is told fits what was there.
    fn apply(&mut self, news: News, message: Vec<u8>) {
        let schema = news.schema;
        let key = |table, uuid: Uuid| (schema.table(table).name.clone(), uuid.to_string());
        match news.rows {
            ToldRows::All(all) => {
                self.rows.clear();
                let each = &mut |table, row: FullRow| {
                    self.rows
                        .insert(key(table, row.uuid()), values(schema.table(table), row.cells()));
                    Ok(())
                };
                all.take(message, &mut self.versions, each).expect("rows make sense");
            }
            ToldRows::Images(images) => {
                for image in images {
                    let table = schema.table(image.table);
                    let cells = image
                        .values
                        .as_ref()
                        .map(|values| values.iter().map(|(id, datum)| (*id, datum)));
                    match cells {
                        Some(cells) => {
                            self.rows.insert(key(image.table, image.uuid), values(table, cells))
                        }
                        None => self.rows.remove(&key(image.table, image.uuid)),
                    };
                }
            }
            ToldRows::Edits(edits) => {
                for edit in edits {
                    let (key, table) = (key(edit.table, edit.uuid), schema.table(edit.table));
                    match edit.edit {
                        Edit::Insert(row) => {
                            let before = self.rows.insert(key, values(table, row.cells()));
                            assert_eq!(before, None, "a row comes once");
                        }
                        Edit::Modify(columns) => {
                            let row = self.rows.get_mut(&key).expect("what changes is there");
                            let cells = columns.iter().map(|edit| (edit.column, &edit.value));
                            row.extend(all_values(table, cells));
                            row.retain(|_, value| *value != 0);
                        }
                        Edit::Delete => {
                            self.rows.remove(&key).expect("what goes was there");
                        }
                    }
                }
            }
        }
    }

    /// The rows are all that matched what was told to hold, in a state of the server's, not before
    /// the last one.
    fn check(&mut self) {
        let Some((number, whole)) = &self.told else { return };
        let states = self.server.states.iter().enumerate().skip(self.seen);
        let mut fitting = states.filter(|(_, state)| {
            let (shown, expected) = self.shown(*number, state);
            state.view(&shown) == self.rows && expected == *whole
        });
        let Some((place, _)) = fitting.next() else {
            let (seen, of) = (self.seen, &self.wanted[*number as usize]);
            panic!(
                "{number}, {of:?}, whole {whole:?}: {:?}\nof none of {:?}",
                self.rows,
                &self.server.states[seen..]
            );
        };
        self.seen = place;
    }

    /// What the owner is to have of a state under the conditions of a number, and which tables
    /// whole.
    fn shown(&self, number: u64, state: &State) -> (BTreeMap<String, Shown>, Vec<String>) {
        let (mut of, mut whole) = (BTreeMap::new(), Vec::new());
        for table in ["T", "U"].into_iter().filter(|table| !state.columns(table).is_empty()) {
            let there: BTreeSet<&str> = state.columns(table).iter().copied().collect();
            let columns = there.iter().filter(|name| table != "T" || OF_T.contains(name));
            let columns = columns.map(|name| (*name).to_owned()).collect();
            let mut clauses = Vec::new();
            if let Some(Condition::Any(any)) = self.wanted[number as usize].get(table) {
                let any = any
                    .iter()
                    .map(|clause| serde_json::from_str(&clause.to_string()).expect("JSON"));
                clauses = any.collect();
                let is_there =
                    |clause: &Value| clause[0].as_str().is_none_or(|name| there.contains(name));
                if self.is_oldest || !clauses.iter().all(is_there) {
                    whole.push(table.to_owned());
                    clauses.clear();
                } else if clauses.is_empty() {
                    clauses.push(json!(false));
                }
            }
            of.insert(table.to_owned(), Shown { columns, clauses });
        }
        (of, whole)
    }
}

/// The values of a row that are not 0.
fn values<'a>(table: &TableSchema, cells: impl Iterator<Item = (ColumnId, &'a Datum)>) -> Row {
    let mut row = all_values(table, cells);
    row.retain(|_, value| *value != 0);
    row
}

fn all_values<'a>(table: &TableSchema, cells: impl Iterator<Item = (ColumnId, &'a Datum)>) -> Row {
    let value = |datum: &Datum| match datum.as_ref().scalar() {
        Some(AtomRef::Integer(value)) => Some(value),
        _ => None,
    };
    let cells = cells.filter(|(id, _)| *id > ColumnId::VERSION);
    cells.map(|(id, datum)| (table.column(id).name.clone(), value(datum).unwrap_or(0))).collect()
}
