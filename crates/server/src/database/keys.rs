//! The keys of a database's tables beside its unique indexes: who wants them, and how the tables come
//! to have them (`docs/decisions/018`). What a key is and does is the engine's.
//!
//! 1. Somebody declares keys, by the names of tables and columns: an operator (`index/add`), a
//!    schema (`"alternate_key"`), the file beside the database's, the configuration. What a name does
//!    not stand for now waits for a schema in which it does.
//! 2. What is declared here, but for the configuration, is kept in the file beside the database's:
//!    `Effect::KeepKeys`. The commands and conversions that led to it are answered when that is there.
//! 3. At the end of a round the tables, if they are here, are given the keys that are declared and
//!    lose those that are not any more. That is so after every change of either, be the tables new,
//!    converted or back from a helper: declarations are the truth, and the tables follow.
//! 4. A step a round builds keys, and lets the engine decide about those of its own, within a budget.
//!    Rows are counted, never time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use weir_data::{ColumnId, DeclaredKeys, KeyOrder, KeyWish, Schema};
use weir_engine::keys::Origin;
use weir_engine::{Database, KeyBudget, KeyEvent, KeyKind, KeyName};
use weir_log::key_file;

use crate::aligned::aligned;
use crate::database::{Databases, Db};
use crate::effect::{Effect, Level};
use crate::ids::{CommandId, DbId};
use crate::origin;
use crate::session::Sessions;
use crate::shell::Shell;
use crate::storage::load::KeptKeys;
use crate::work::Garbage;

/// Rows and entries that a round files in keys that are being built: well below a millisecond.
const STEP_ROWS: usize = 2_000;

/// What keys that the server has chosen itself may take, in bytes for each atom of the database: a
/// tenth of what an atom takes, about.
const CHOSEN_BYTES_PER_ATOM: usize = 4;

/// What they may take however small the database is, in bytes.
const CHOSEN_BYTES_MIN: usize = 4 << 20;

/// Which keys are wanted.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Declared by operators and schemas.
    kept: DeclaredKeys,
    /// Declared by the configuration.
    configured: DeclaredKeys,
    /// What is declared, or the tables, may have changed since the tables followed.
    is_stale: bool,
    /// What the file beside the database's is known to say.
    in_file: DeclaredKeys,
    /// What it says instead, perhaps: that could not be written, or be made to last.
    perhaps: Option<DeclaredKeys>,
    /// The files that are being written, in order.
    writing: VecDeque<Writing>,
}

/// A file that is being written.
#[derive(Debug)]
struct Writing {
    keys: DeclaredKeys,
    /// Who waits for it.
    waiters: Vec<Waiter>,
}

/// Who is answered when what was declared is in the file.
#[derive(Debug)]
enum Waiter {
    Command(CommandId),
    /// A client whose conversion is done.
    Conversion(origin::Origin),
}

/// A declared key as it is now.
pub(crate) struct ShownKey {
    pub(crate) table: String,
    pub(crate) column: String,
    /// What was declared, and where; `None` for a key that the server has chosen itself.
    pub(crate) declared: Option<(KeyOrder, &'static str)>,
    /// `None` if there is no such key now, or the tables are away.
    pub(crate) state: Option<weir_engine::keys::KeyState>,
}

impl Keys {
    /// What is declared for a column, and where.
    fn declared(&self, table: &str, column: &str) -> Option<(KeyOrder, &'static str)> {
        let of = |keys: &DeclaredKeys, by| keys.get(table, column).map(|order| (order, by));
        of(&self.configured, "configuration").or_else(|| of(&self.kept, "declared"))
    }

    /// All that is declared, each column once.
    fn all(&self) -> impl Iterator<Item = (&str, &str, KeyOrder)> {
        let is_configured = |(table, column, _): &(&str, &str, KeyOrder)| {
            self.configured.get(table, column).is_some()
        };
        let kept = self.kept.iter().filter(move |key| !is_configured(key));
        self.configured.iter().chain(kept)
    }

    /// The keys that these tables are to have.
    fn names(&self, database: &Database) -> BTreeSet<KeyName> {
        let name = |(table, column, order)| name_of(database, table, column, order);
        self.all().filter_map(name).collect()
    }
}

/// The key that is meant, if there is such a column.
fn name_of(database: &Database, table: &str, column: &str, order: KeyOrder) -> Option<KeyName> {
    let table = database.schema().table_id(table)?;
    let column = database.schema().table(table).column_id(column)?;
    let is_data = column > ColumnId::VERSION;
    is_data.then(|| database.key_for(table, column, order != KeyOrder::Hash))
}

impl Databases {
    /// The file beside a database's has said which keys are declared, or there is none: then what
    /// the schema in the file says counts.
    pub(crate) fn begin_keys(&mut self, shell: &mut Shell, id: DbId, kept: KeptKeys) {
        let db = self.open(id);
        match kept {
            Some(Ok(kept)) => {
                (db.keys.in_file, db.keys.kept) = (kept.clone(), kept);
                db.keys.is_stale = true;
            }
            Some(Err(problem)) => {
                let path = db.storage.path().unwrap_or_default();
                let text =
                    format!("{path}: the declared keys beside the file are not used: {problem}");
                shell.log("ovsdb_server", Level::Info, text);
            }
            None => {
                let schema = Arc::clone(db.schema());
                self.follow_wishes(shell, id, &schema.keys);
            }
        }
    }

    /// A configuration says which keys a database is to have.
    pub(crate) fn configure_keys(&mut self, id: DbId, configured: DeclaredKeys) {
        let keys = &mut self.open(id).keys;
        if keys.configured != configured {
            keys.configured = configured;
            keys.is_stale = true;
        }
    }

    /// A schema says which keys it wants: what it does not mention stays as it is.
    pub(super) fn follow_wishes(&mut self, shell: &mut Shell, id: DbId, wishes: &[KeyWish]) {
        let db = self.open(id);
        if !db.keys.kept.follow(wishes) {
            let name = &db.name;
            let text = format!("{name}: the schema declares more keys than there may be");
            shell.log("ovsdb_server", Level::Warning, text);
        }
        self.keep_keys(shell, id, None);
    }

    /// What is declared goes to the file beside the database's, unless it is there, or on its way. True
    /// if the command is answered when it is there.
    fn keep_keys(&mut self, shell: &mut Shell, id: DbId, command: Option<CommandId>) -> bool {
        let db = self.open(id);
        db.keys.is_stale = true;
        if db.storage.path().is_none() {
            return false;
        }
        let waiter = command.map(Waiter::Command);
        let Keys { kept, in_file, perhaps, writing, .. } = &mut db.keys;
        match writing.back_mut() {
            Some(last) if last.keys == *kept => last.waiters.extend(waiter),
            None if in_file == kept && perhaps.is_none() => return false,
            _ => {
                // Without a file the wishes in the database file would be followed again.
                let mut wishes = db.tables.schema().keys.iter();
                let says = !kept.is_empty() || wishes.any(|wish| wish.order.is_some());
                let text = says.then(|| key_file::write(&db.name, kept));
                let (keys, waiters) = (kept.clone(), waiter.into_iter().collect());
                writing.push_back(Writing { keys, waiters });
                shell.ask(Effect::KeepKeys { db: id, text });
            }
        }
        true
    }

    /// Whether a conversion that is done is answered later, when what is declared is in the file.
    pub(super) fn await_keys(&mut self, origin: &origin::Origin) -> bool {
        let db = self.get_mut(origin.db);
        let Some(last) = db.and_then(|db| db.keys.writing.back_mut()) else { return false };
        last.waiters.push(Waiter::Conversion(origin.clone()));
        true
    }

    /// The file beside a database's has been written, or has not.
    pub(crate) fn keys_kept(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        id: DbId,
        result: Result<(), String>,
    ) {
        let Some(db) = self.get_mut(id) else { return };
        let written = db.keys.writing.pop_front().expect("a file is answered for once");
        let Writing { keys, waiters } = written;
        match result {
            Ok(()) => (db.keys.in_file, db.keys.perhaps) = (keys, None),
            Err(error) => {
                db.keys.perhaps = Some(keys);
                let path = db.storage.path().unwrap_or_default();
                let text = format!(
                    "{path}: which keys are declared could not be written beside the file \
                     ({error}): the next start does not know of it"
                );
                shell.log("ovsdb_server", Level::Info, text);
            }
        }
        self.answer_waiters(shell, sessions, waiters);
    }

    /// The database goes: nobody hears any more of files that are being written.
    pub(super) fn abandon_keys(&mut self, shell: &mut Shell, sessions: &mut Sessions, db: &mut Db) {
        let writing = std::mem::take(&mut db.keys.writing);
        let waiters = writing.into_iter().flat_map(|writing| writing.waiters);
        self.answer_waiters(shell, sessions, waiters);
    }

    fn answer_waiters(
        &mut self,
        shell: &mut Shell,
        sessions: &mut Sessions,
        waiters: impl IntoIterator<Item = Waiter>,
    ) {
        for waiter in waiters {
            match waiter {
                Waiter::Command(id) => {
                    shell.ask(Effect::CommandReply { id, reply: Ok(String::new()) });
                }
                Waiter::Conversion(origin) => {
                    self.answer_conversion(shell, sessions, &origin, Ok(()));
                }
            }
        }
    }

    /// `index/add DB TABLE COLUMN [hash|asc|desc]`; `None` if the answer comes later.
    pub(crate) fn add_index(
        &mut self,
        shell: &mut Shell,
        command: CommandId,
        args: &[String],
    ) -> Result<Option<String>, String> {
        let [name, table, column, rest @ ..] = args else {
            return Err("invalid command argument".into());
        };
        let order =
            rest.first().map_or(Some(KeyOrder::Hash), |word| KeyOrder::parse(word.as_bytes()));
        let order = order.ok_or("invalid command argument")?;
        let id = self.by_name(name).ok_or("no such database")?;
        let db = self.open(id);
        check_column(db.schema(), table, column, order)?;
        if db.is_reserved() {
            return Err("cannot add keys to built-in databases".into());
        }
        if !db.keys.kept.declare(table, column, order) {
            return Err("too many keys".into());
        }
        let is_later = self.keep_keys(shell, id, Some(command));
        Ok((!is_later).then(String::new))
    }

    /// `index/drop DB TABLE COLUMN`; `None` if the answer comes later. The tables are here.
    pub(crate) fn drop_index(
        &mut self,
        shell: &mut Shell,
        command: CommandId,
        args: &[String],
    ) -> Result<Option<String>, String> {
        let [name, table, column] = args else { return Err("invalid command argument".into()) };
        let id = self.by_name(name).ok_or("no such database")?;
        let db = self.open(id);
        if db.keys.configured.get(table, column).is_some() {
            return Err("the key is declared in the configuration file".into());
        }
        let is_chosen = db.drop_chosen(shell, table, column);
        let is_declared = db.keys.kept.remove(table, column);
        // The file may still say so: the last time it could not be written.
        let mut files = std::iter::once(&db.keys.in_file).chain(&db.keys.perhaps);
        let may_say = |keys: &DeclaredKeys| keys.get(table, column).is_some();
        if is_declared || files.any(may_say) {
            let is_later = self.keep_keys(shell, id, Some(command));
            return Ok((!is_later).then(String::new));
        }
        if is_chosen { Ok(Some(String::new())) } else { Err("no such key".into()) }
    }

    /// `index/list [DB]`
    pub(crate) fn list_indexes(&self, name: Option<&String>) -> Result<String, String> {
        let chosen: Vec<(&str, DbId)> = match name {
            Some(name) => vec![(name, self.by_name(name).ok_or("no such database")?)],
            None => self.names().collect(),
        };
        let mut lines = vec![
            [
                "database",
                "table",
                "column",
                "kind",
                "wanted by",
                "state",
                "entries",
                "bytes",
                "rows saved",
            ]
            .map(str::to_owned),
        ];
        for (name, id) in chosen {
            let db = self.get(id).expect("whatever has a name is open");
            for key in db.shown_keys() {
                let figures = |figure: fn(&weir_engine::keys::KeyState) -> u64| {
                    key.state.as_ref().map_or("-".to_owned(), |state| figure(state).to_string())
                };
                lines.push([
                    name.to_owned(),
                    key.table.clone(),
                    key.column.clone(),
                    key.kind().to_owned(),
                    key.wanted_by(),
                    db.state_of(&key).to_owned(),
                    figures(|state| state.entries as u64),
                    figures(|state| state.bytes as u64),
                    figures(|state| state.saved),
                ]);
            }
        }
        Ok(aligned(&lines, usize::MAX))
    }

    /// The tables that are here follow what is declared, and a step is done where there is something
    /// to do.
    pub(crate) fn tend_keys(&mut self, shell: &mut Shell) {
        for (_, db) in &mut self.entries {
            if db.wants_tending() {
                db.tend_keys(shell);
            }
        }
    }

    /// Whether there is something to do with keys in the next round.
    pub(crate) fn want_tending(&self) -> bool {
        self.values().any(Db::wants_tending)
    }
}

impl Db {
    /// Others have taken the place of the tables, or may have.
    pub(super) fn note_other_tables(&mut self) {
        self.keys.is_stale = true;
    }

    /// The keys of the tables, if those are here.
    pub(super) fn key_names(&self) -> Vec<KeyName> {
        self.tables.here().into_iter().flat_map(Database::keys).map(|state| state.key).collect()
    }

    /// The keys that the configuration declares.
    pub(crate) fn configured_keys(&self) -> &DeclaredKeys {
        &self.keys.configured
    }

    #[inline]
    fn wants_tending(&self) -> bool {
        self.tables.here().is_some_and(|here| self.keys.is_stale || here.wants_tending())
    }

    fn tend_keys(&mut self, shell: &mut Shell) {
        if std::mem::take(&mut self.keys.is_stale) {
            self.follow_declared(shell);
        }
        let bytes = (self.sizes().atoms * CHOSEN_BYTES_PER_ATOM).max(CHOSEN_BYTES_MIN);
        let budget = KeyBudget { bytes, step: STEP_ROWS };
        let database = self.tables.here_mut().expect("tables that are away are left alone");
        for event in database.tend_keys(budget) {
            let text = line(&self.name, database.schema(), &event);
            shell.log("ovsdb_server", Level::Info, text);
            match event {
                KeyEvent::Begun { .. } => {}
                KeyEvent::Ready { snapshot, .. } => shell.free(Garbage::Rows(snapshot)),
                KeyEvent::Dropped { dropped, .. } => shell.free(Garbage::Key(Box::new(dropped))),
            }
        }
    }

    /// The tables get the keys that are declared, and lose those that are not any more.
    fn follow_declared(&mut self, shell: &mut Shell) {
        let Self { name, tables, keys, .. } = self;
        let database = tables.here_mut().expect("tables that are away are left alone");
        let wanted = keys.names(database);
        let has = |key: &weir_engine::keys::KeyState| key.origin == Origin::Declared;
        let declared: BTreeSet<KeyName> = database.keys().filter(has).map(|key| key.key).collect();
        for gone in declared.difference(&wanted) {
            let dropped = database.drop_key(*gone).expect("it is among the keys");
            let text = format!("{name}: dropped the {}, as asked", shown(database.schema(), *gone));
            shell.log("ovsdb_server", Level::Info, text);
            shell.free(Garbage::Key(Box::new(dropped)));
        }
        for new in wanted.difference(&declared) {
            let text = format!("{name}: building {}, as asked", a_key(database.schema(), *new));
            // The kind is the one that fits the column, and the key was not there.
            if database.add_key(*new).is_ok() {
                shell.log("ovsdb_server", Level::Info, text);
            }
        }
    }

    /// Drops keys of a column that the server has chosen itself; whether there was any.
    fn drop_chosen(&mut self, shell: &mut Shell, table: &str, column: &str) -> bool {
        let Some(database) = self.tables.here_mut() else { return false };
        let schema = Arc::clone(database.schema());
        let is_meant = |key: &KeyName| is_of(&schema, *key, table, column);
        let chosen = database.keys().filter(|key| key.origin == Origin::Automatic);
        let chosen: Vec<KeyName> = chosen.map(|key| key.key).filter(is_meant).collect();
        for key in &chosen {
            let dropped = database.drop_key(*key).expect("it is among the keys");
            shell.free(Garbage::Key(Box::new(dropped)));
        }
        !chosen.is_empty()
    }

    /// All keys: those that are declared, and those that the server has chosen itself.
    pub(crate) fn shown_keys(&self) -> Vec<ShownKey> {
        let here = self.tables.here();
        let mut shown: Vec<ShownKey> = Vec::new();
        for (table, column, order) in self.keys.all() {
            let key = here.and_then(|here| name_of(here, table, column, order));
            let state = key.and_then(|key| here?.keys().find(|state| state.key == key));
            let declared = self.keys.declared(table, column);
            shown.push(ShownKey { table: table.into(), column: column.into(), declared, state });
        }
        let chosen = here.into_iter().flat_map(Database::keys);
        for state in chosen.filter(|state| state.origin == Origin::Automatic) {
            let table = self.schema().table(state.key.table);
            let column = table.column(state.key.column).name.clone();
            let (table, state) = (table.name.clone(), Some(state));
            shown.push(ShownKey { table, column, declared: None, state });
        }
        shown.sort_by(|a, b| (&a.table, &a.column).cmp(&(&b.table, &b.column)));
        shown
    }

    /// How a key is: `ready`, `building`, `busy` (a helper has the tables), or `no column`.
    pub(crate) fn state_of(&self, key: &ShownKey) -> &'static str {
        let table = self.schema().table_id(&key.table);
        let column = table.and_then(|id| self.schema().table(id).column_id(&key.column));
        match &key.state {
            Some(state) if state.serves => "ready",
            Some(_) => "building",
            None if column.is_none() => "no column",
            None if self.tables.is_away() => "busy",
            None => "building",
        }
    }
}

impl ShownKey {
    /// The kind of key, if it is there.
    pub(crate) fn kind(&self) -> &'static str {
        self.state.as_ref().map_or("-", |state| state.key.kind.name())
    }

    /// Who wants the key: `server`, or else where it is declared, and in which order.
    pub(crate) fn wanted_by(&self) -> String {
        match self.declared {
            None => "server".to_owned(),
            Some((KeyOrder::Hash, by)) => by.to_owned(),
            Some((order, by)) => format!("{by}, {}", order.name()),
        }
    }
}

/// Whether a key is of the column of this name.
fn is_of(schema: &Schema, key: KeyName, table: &str, column: &str) -> bool {
    let of = schema.table(key.table);
    of.name == table && of.column(key.column).name == column
}

/// Whether a column can have such a key.
fn check_column(schema: &Schema, table: &str, column: &str, order: KeyOrder) -> Result<(), String> {
    let table = schema.table(schema.table_id(table).ok_or("no such table")?);
    let column = table.column_id(column).ok_or("no such column")?;
    if column <= ColumnId::VERSION {
        return Err("the column cannot have a key".into());
    }
    let kind = weir_engine::keys::kind_for(table, column, order != KeyOrder::Hash);
    if order != KeyOrder::Hash && kind != KeyKind::Ordered {
        return Err("the column cannot have an ordered key".into());
    }
    Ok(())
}

/// What a log calls a key.
fn shown(schema: &Schema, key: KeyName) -> String {
    let table = schema.table(key.table);
    let (kind, column) = (key.kind.name(), &table.column(key.column).name);
    format!("{kind} key on column {column} of table {}", table.name)
}

/// What a log calls a key that is new.
fn a_key(schema: &Schema, key: KeyName) -> String {
    let article = if key.kind == KeyKind::Hash { "a" } else { "an" };
    format!("{article} {}", shown(schema, key))
}

/// What a log says of what the engine has done.
fn line(name: &str, schema: &Schema, event: &KeyEvent) -> String {
    match event {
        KeyEvent::Begun { key, scanned } => {
            let key = a_key(schema, *key);
            format!("{name}: building {key}: for want of it, {scanned} rows were looked at")
        }
        KeyEvent::Ready { key, bytes, .. } => {
            format!("{name}: the {} is built ({bytes} bytes)", shown(schema, *key))
        }
        KeyEvent::Dropped { key, why, .. } => {
            format!("{name}: dropped the {}: {why}", shown(schema, *key))
        }
    }
}
