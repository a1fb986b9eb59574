//! `monitor`, `monitor-cond` and `monitor-cond-since`.
//!
//! The steps:
//! 1. The arguments and the schema make the request.
//! 2. The reply holds the rows that are there; each update that follows holds changes. Both become
//!    one table a table of the database, in the order of names and UUIDs.
//! 3. A lost connection or a cancelled monitor ends the program.

use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_data::{Schema, TableSchema};
use weir_json::{Kind, Text, Value, array, object, validate};
use weir_table::{Cell, Shape, Table};

use super::background::{AdminCommands, Background, Happened, receive_failed};
use super::output::{TablePrinter, printer, write_failure};
use super::remote::Target;
use super::schema::{fetch, sorted_columns, sorted_tables};
use super::session::{Notification, Refusal};
use super::{Client, PROGRAM};
use crate::program::{Failure, Outcome};

const ADMIN_COMMANDS: AdminCommands = &[
    ("ovsdb-client/block", "", 0, 0),
    ("ovsdb-client/cond_change", "TABLE COND", 2, 2),
    ("ovsdb-client/unblock", "", 0, 0),
];

/// The transaction id of a client that has seen nothing.
const NO_TRANSACTION: &str = "00000000-0000-0000-0000-000000000000";

/// How changes are told, by the method of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `monitor`: old and new rows.
    Rows,
    /// `monitor_cond`: differences.
    Differences,
    /// `monitor_cond_since`: differences and transactions.
    Since,
}

/// A table that is watched.
struct Watched<'s> {
    table: &'s TableSchema,
    headings: Vec<&'s str>,
    shapes: Vec<Shape>,
    request: Value,
}

/// Runs the command `monitor`.
pub(super) fn monitor(client: &Client, mut target: Target) -> Outcome {
    let schema = fetch(&mut target.session, &target.database)?;
    let args = std::mem::take(&mut target.args);
    let (name, columns) = args.split_first().ok_or_else(|| Failure::new("a table is missing"))?;
    let peer = target.session.peer().to_owned();
    let tables: Vec<&TableSchema> = match (name.as_str(), schema.table_id(name)) {
        (_, Some(id)) => vec![schema.table(id)],
        ("ALL", None) => sorted_tables(&schema),
        _ => return Err(no_table(&schema, name, Some(&peer))),
    };
    let watched = tables
        .into_iter()
        .map(|table| watch(&schema, table, columns, None, &peer))
        .collect::<Result<Vec<_>, _>>()?;
    follow(client, target, Version::Rows, &watched, None)
}

/// Runs the command `monitor-cond`.
pub(super) fn monitor_cond(client: &Client, target: Target) -> Outcome {
    conditional(client, target, Version::Differences)
}

/// Runs the command `monitor-cond-since`.
pub(super) fn monitor_cond_since(client: &Client, target: Target) -> Outcome {
    conditional(client, target, Version::Since)
}

fn conditional(client: &Client, mut target: Target, version: Version) -> Outcome {
    let mut args = std::mem::take(&mut target.args);
    let mut last = NO_TRANSACTION.to_owned();
    if version == Version::Since && args.len() > 2 && weir_data::Uuid::parse(&args[0]).is_some() {
        last = args.remove(0);
    }
    let schema = fetch(&mut target.session, &target.database)?;
    let [condition, name, columns @ ..] = &args[..] else {
        return Err(Failure::new("a table is missing"));
    };
    let id = schema.table_id(name).ok_or_else(|| no_table(&schema, name, None))?;
    let table = schema.table(id);
    let condition = parse_condition(condition, table)?;
    let peer = target.session.peer().to_owned();
    let watched = watch(&schema, table, columns, Some(condition), &peer)?;
    let last = (version == Version::Since).then_some(last);
    follow(client, target, version, &[watched], last)
}

fn no_table(schema: &Schema, name: &str, peer: Option<&str>) -> Failure {
    let peer = peer.map_or(String::new(), |peer| format!("{peer}: "));
    let names: Vec<&str> = schema.tables.iter().map(|table| table.name.as_str()).collect();
    let text = format!("{peer}{} does not have a table named \"{name}\"", schema.name);
    Failure::new(text).hint(format!("there are: {}", names.join(" ")))
}

fn parse_condition(text: &str, table: &TableSchema) -> Result<Value, Failure> {
    let json =
        validate(text.as_bytes()).map_err(|error| Failure::new(format!("\"{text}\": {error}")))?;
    weir_data::condition::Condition::parse(json, table, None)
        .map_err(|error| Failure::new(error.to_string()))?;
    Ok(json.to_value())
}

/// What to watch of a table: one request for each argument, or all columns.
fn watch<'s>(
    schema: &Schema,
    table: &'s TableSchema,
    args: &[String],
    condition: Option<Value>,
    peer: &str,
) -> Result<Watched<'s>, Failure> {
    let mut watched =
        Watched { table, headings: vec!["row", "action"], shapes: vec![], request: Value::Null };
    let mut requests = vec![];
    let none = String::new();
    let args: Vec<&String> = if args.is_empty() { vec![&none] } else { args.iter().collect() };
    for arg in args {
        requests.push(request(schema, table, arg, condition.as_ref(), peer, &mut watched)?);
    }
    watched.request = array(requests);
    Ok(watched)
}

/// One argument, such as `name,ports,!initial`.
fn request<'s>(
    schema: &Schema,
    table: &'s TableSchema,
    arg: &str,
    condition: Option<&Value>,
    peer: &str,
    watched: &mut Watched<'s>,
) -> Result<Value, Failure> {
    let mut columns = vec![];
    let mut select = ["initial", "insert", "delete", "modify"].map(|kind| (kind, true));
    for word in arg.split(',').filter(|word| !word.is_empty()) {
        let kind = word.strip_prefix('!');
        if let Some((_, wanted)) = select.iter_mut().find(|(name, _)| Some(*name) == kind) {
            *wanted = false;
            continue;
        }
        let column = table.column_id(word).ok_or_else(|| {
            let (table, database) = (&table.name, &schema.name);
            let text = format!(
                "{peer}: table \"{table}\" in {database} does not have a column named \"{word}\""
            );
            Failure::new(text)
        })?;
        columns.push(table.column(column));
    }
    if columns.is_empty() {
        let data = |column: &&weir_data::ColumnSchema| !column.name.starts_with('_');
        columns = sorted_columns(table).into_iter().filter(data).collect();
        columns.extend(table.column_id("_version").map(|id| table.column(id)));
    }
    for column in &columns {
        if watched.headings.iter().skip(2).any(|heading| *heading == column.name) {
            let text = format!("{peer}: column \"{}\" mentioned multiple times", column.name);
            return Err(Failure::new(text));
        }
        watched.headings.push(&column.name);
        watched.shapes.push((&column.ty).into());
    }
    let names = array(columns.iter().map(|column| column.name.as_str()));
    let mut request = std::collections::BTreeMap::from([("columns".to_owned(), names)]);
    if select.iter().any(|(_, wanted)| !wanted) {
        let select = object(select.map(|(kind, wanted)| (kind, Value::from(wanted))));
        request.insert("select".to_owned(), select);
    }
    if let Some(condition) = condition {
        request.insert("where".to_owned(), condition.clone());
    }
    Ok(Value::Object(request))
}

/// Sends the request, and prints what comes until the connection ends.
fn follow(
    client: &Client,
    target: Target,
    version: Version,
    watched: &[Watched<'_>],
    last: Option<String>,
) -> Outcome {
    let Target { mut session, database, .. } = target;
    let mut background = Background::start(client, ADMIN_COMMANDS, true)?;
    if client.options.db_change_aware != Some(false) {
        // A server that does not know it goes on as it would.
        let aware = session.call("set_db_change_aware", Value::Array(vec![true.into()]));
        if let Err(Refusal::Lost(lost)) = aware {
            return Err(lost.into());
        }
    }
    let requests =
        watched.iter().map(|watched| (watched.table.name.clone(), watched.request.clone()));
    let mut params =
        vec![Value::from(database.as_str()), Value::Null, Value::Object(requests.collect())];
    params.extend(last.map(Value::from));
    let method = match version {
        Version::Rows => "monitor",
        Version::Differences => "monitor_cond",
        Version::Since => "monitor_cond_since",
    };
    let mut bytes = vec![];
    Value::Array(params).write(&mut bytes);
    let peer = session.peer().to_owned();
    let mut print = Print { printer: printer(client.options.style), client, watched, peer };
    let initial = session.call_text(method, &bytes, |reply| print.initial(version, reply));
    initial.map_err(|refusal| match refusal {
        Refusal::Lost(lost) => receive_failed(session.peer(), &lost),
        // The reference says nothing, and waits for updates that never come.
        Refusal::Error(_) => refusal.into(),
    })??;
    client.process.ready(&client.log)?;
    loop {
        match background.wait(&mut session)? {
            Happened::Exit => return Ok(ExitCode::SUCCESS),
            Happened::Reply(_) => {}
            Happened::Notification(notification) => {
                if let Some(end) = print.update(version, &notification, &database)? {
                    return Ok(end);
                }
            }
            Happened::Admin(request) => {
                let reply = match request.name.as_str() {
                    "ovsdb-client/block" if background.blocked => "already blocking".to_owned(),
                    "ovsdb-client/unblock" if !background.blocked => "already unblocked".to_owned(),
                    "ovsdb-client/block" | "ovsdb-client/unblock" => {
                        background.blocked = !background.blocked;
                        String::new()
                    }
                    _ => {
                        if let Some(params) = condition_change(&request.args) {
                            session.request_only("monitor_cond_change", &params)?;
                        }
                        "condition changed".to_owned()
                    }
                };
                background.reply(&request, Ok(reply));
            }
        }
    }
}

/// The parameters of `monitor_cond_change`.
fn condition_change(args: &[String]) -> Option<Value> {
    let [table, condition] = args else { return None };
    let condition = Value::parse(condition.as_bytes()).ok()?;
    let change = object([(table.as_str(), array([object([("where", condition)])]))]);
    Some(Value::Array(vec![Value::Null, Value::Null, change]))
}

/// Prints what a server sends.
struct Print<'c, 's> {
    printer: TablePrinter,
    client: &'c Client,
    watched: &'c [Watched<'s>],
    /// What messages call the server.
    peer: String,
}

/// A line of a table: the row, what happened to it, its columns.
struct Line<'a> {
    uuid: &'a str,
    action: &'static str,
    row: Option<Text<'a>>,
}

impl Print<'_, '_> {
    /// The reply to the request.
    fn initial(&mut self, version: Version, reply: Text<'_>) -> Result<(), Failure> {
        let mut updates = Some(reply);
        if version == Version::Since {
            let Some(mut parts) = reply.elements() else {
                complain("<result> is not array");
                return Ok(());
            };
            let count = parts.clone().count();
            if count != 3 {
                complain(&format!("<result> should have 3 elements, but has {count}."));
                return Ok(());
            }
            let found = parts.next().and_then(Text::bool).unwrap_or(false);
            let last = parts.next().and_then(Text::str).unwrap_or_default();
            let line = format!("found: {found}, last_id: {last}\n");
            self.printer.out().write_all(line.as_bytes()).map_err(write_failure)?;
            updates = parts.next();
        }
        if let Some(updates) = updates {
            self.tables(version, updates, true)?;
        }
        self.printer.out().flush().map_err(write_failure)
    }

    /// A notification; an exit status if it ends the program.
    fn update(
        &mut self,
        version: Version,
        notification: &Notification,
        database: &str,
    ) -> Result<Option<ExitCode>, Failure> {
        let params = &notification.params;
        let updates = match (notification.method.as_str(), version, &params[..]) {
            ("update", Version::Rows, [Value::Null, updates])
            | ("update2", Version::Differences, [Value::Null, updates]) => updates,
            ("update3", Version::Since, [Value::Null, last, updates]) => {
                let last = last.as_str().unwrap_or_default();
                let line = format!("\nlast_id: {last}");
                self.printer.out().write_all(line.as_bytes()).map_err(write_failure)?;
                updates
            }
            ("monitor_canceled", ..) => {
                let text = format!("{}: {database} database was removed", self.peer);
                return Err(Failure::new(text));
            }
            _ => return Ok(None),
        };
        let mut bytes = vec![];
        updates.write(&mut bytes);
        match validate(&bytes) {
            Ok(text) => self.tables(version, text, false)?,
            Err(_) => complain(no_updates(version)),
        }
        self.printer.out().flush().map_err(write_failure)?;
        Ok(None)
    }

    /// The tables of one message.
    fn tables(
        &mut self,
        version: Version,
        updates: Text<'_>,
        initial: bool,
    ) -> Result<(), Failure> {
        let Some(updates) = updates.object() else {
            complain(no_updates(version));
            return Ok(());
        };
        for watched in self.watched {
            let name = &watched.table.name;
            let Some(rows) = updates.get(name) else { continue };
            let Some(rows) = rows.object() else {
                complain(&format!("<table-update> for table {name} is not object"));
                continue;
            };
            let mut lines = vec![];
            for (uuid, row) in rows.iter() {
                // A UUID has no letters that could be anything else.
                let uuid = std::str::from_utf8(uuid).unwrap_or_default();
                match version {
                    Version::Rows => row_lines(uuid, row, initial, &mut lines),
                    _ => difference_lines(uuid, row, &mut lines),
                }
            }
            self.table(watched, &lines)?;
        }
        Ok(())
    }

    fn table(&mut self, watched: &Watched<'_>, lines: &[Line<'_>]) -> Result<(), Failure> {
        let columns: Vec<_> = lines.iter().map(|line| line.row.and_then(Text::object)).collect();
        let time = self.client.options.timestamp.then(now);
        let cell = |row: usize, column: usize| {
            let Some(line) = lines.get(row) else { return Cell::Empty };
            match column {
                0 if line.uuid.is_empty() => Cell::Empty,
                0 => Cell::Text(line.uuid),
                1 => Cell::Text(line.action),
                _ => {
                    let heading = watched.headings.get(column).copied().unwrap_or_default();
                    let value = columns.get(row).and_then(|row| row.as_ref()?.get(heading));
                    let shape = watched.shapes.get(column - 2);
                    value.zip(shape).map_or(Cell::Empty, |(text, shape)| Cell::Value(text, *shape))
                }
            }
        };
        let table = Table {
            caption: (self.watched.len() > 1).then_some(watched.table.name.as_str()),
            time: time.as_deref(),
            headings: &watched.headings,
            rows: lines.len(),
            cell,
        };
        self.printer.print(&table).map_err(write_failure)
    }
}

/// What a server sent makes no sense; the rest of it is shown.
fn complain(text: &str) {
    Failure::new(text).report(PROGRAM);
}

fn no_updates(version: Version) -> &'static str {
    match version {
        Version::Rows => "<table-updates> is not object",
        Version::Differences | Version::Since => "<table-updates2> is not object",
    }
}

/// A line, if there is a row for it.
fn line<'a>(uuid: &'a str, action: &'static str, row: Text<'a>, lines: &mut Vec<Line<'a>>) {
    match row.kind() {
        Kind::Object => lines.push(Line { uuid, action, row: Some(row) }),
        _ => complain("<row> is not object"),
    }
}

/// `{"old": ..., "new": ...}` (RFC 7047 section 4.1.6).
fn row_lines<'a>(uuid: &'a str, row: Text<'a>, initial: bool, lines: &mut Vec<Line<'a>>) {
    let Some(parts) = row.object() else { return complain("<row-update> is not object") };
    match (parts.get("old"), parts.get("new")) {
        (_, Some(new)) if initial => line(uuid, "initial", new, lines),
        (_, None) if initial => complain("missing initial row"),
        (Some(old), Some(new)) => {
            line(uuid, "old", old, lines);
            line("", "new", new, lines);
        }
        (None, Some(new)) => line(uuid, "insert", new, lines),
        (Some(old), None) => line(uuid, "delete", old, lines),
        (None, None) => complain("missing insert row"),
    }
}

/// `{"initial"|"insert"|"modify"|"delete": ...}` (ovsdb-server(7)).
fn difference_lines<'a>(uuid: &'a str, row: Text<'a>, lines: &mut Vec<Line<'a>>) {
    let Some(parts) = row.object() else { return complain("<row-update2> is not object") };
    let actions = ["delete", "initial", "modify", "insert"];
    let told = actions.into_iter().find_map(|action| Some((action, parts.get(action)?)));
    match told {
        Some(("delete", row)) if row.kind() == Kind::Null => {
            lines.push(Line { uuid, action: "delete", row: None });
        }
        Some(("delete", _)) => complain("delete method does not expect <row>"),
        Some((action, row)) => line(uuid, action, row, lines),
        None => {}
    }
}

/// The time, as `--timestamp` shows it (UTC).
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    weir_host::vlog::format_date("%Y-%m-%d %H:%M:%S.###", ms)
}
