//! Rows of a source in its messages: the first ones, and what changes.

use std::ops::Range;
use std::sync::Arc;

use crate::session::{Said, Session};
use crate::{updates, updates2};
use weir_data::{Error, Row, RowEdit, RowImage, Schema, TableId, TableSchema, Uuid, UuidSource};
use weir_json::{Kind, Text};

/// So many bytes of a message's text are let go at once while its rows are read.
const LET_GO_BYTES: usize = 1 << 20;

/// How a server is asked for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `weir_monitor`, with an update for each transaction (docs/decisions/013-wire-extensions.md).
    Each,
    /// `monitor_cond_since` (ovsdb-server(7) §4.1.15).
    CondSince,
    /// `monitor_cond` (ovsdb-server(7) §4.1.12).
    Cond,
    /// `monitor` (RFC 7047 §4.1.5).
    Monitor,
}

impl Method {
    /// The name of the method.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Each => "weir_monitor",
            Self::CondSince => "monitor_cond_since",
            Self::Cond => "monitor_cond",
            Self::Monitor => "monitor",
        }
    }

    /// The method of its notifications.
    pub(crate) fn update(self) -> &'static str {
        match self {
            Self::Each => "weir_update",
            Self::CondSince => "update3",
            Self::Cond => "update2",
            Self::Monitor => "update",
        }
    }

    /// What an older server may know.
    pub(crate) fn fallback(self) -> Option<Self> {
        match self {
            Self::Each => Some(Self::CondSince),
            Self::CondSince => Some(Self::Cond),
            Self::Cond => Some(Self::Monitor),
            Self::Monitor => None,
        }
    }

    /// Whether columns that no file keeps come, too.
    pub(crate) fn has_all(self) -> bool {
        self != Self::Each
    }
}

/// What a source says of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The state's id; zero if the source has none.
    pub id: Uuid,
    /// The state's index, if that is said with the rows.
    pub index: Option<u64>,
}

/// What has become of the rows.
#[derive(Debug, PartialEq)]
pub struct News {
    /// The state that they are of.
    pub state: State,
    /// What the rows conform to.
    pub schema: Arc<Schema>,
    /// The rows.
    pub rows: Rows,
}

/// Rows of a source.
#[derive(Debug, PartialEq)]
pub enum Rows {
    /// All that there are.
    All(AllRows),
    /// What has changed.
    Edits(Vec<RowEdit>),
    /// Rows that have changed, as they are now.
    Images(Vec<RowImage>),
}

/// Values of columns that no file keeps, told beside the states, which do not have them: each row with all
/// of these values, or `None` for one that is gone.
#[derive(Debug, PartialEq)]
pub struct EphemeralRows {
    /// What the rows conform to.
    pub schema: Arc<Schema>,
    /// There are no other rows.
    pub is_all: bool,
    /// The rows.
    pub images: Vec<RowImage>,
}

/// The monitor of such columns.
#[derive(Clone, Debug)]
pub(crate) struct EphemeralMonitor {
    /// The request for the first rows, if they are awaited.
    pub(crate) request: Option<u64>,
    pub(crate) id: Vec<u8>,
}

/// All rows of a source: where in the message each of them is.
#[derive(Debug, PartialEq)]
pub struct AllRows {
    method: Method,
    schema: Arc<Schema>,
    rows: Vec<(TableId, Uuid, Range<usize>)>,
}

impl AllRows {
    /// Whether they have the columns that no file keeps.
    pub fn has_ephemeral(&self) -> bool {
        self.method.has_all()
    }

    /// Takes the rows out of the message that they are in, the last one first, so that its text goes
    /// while they come: the two are never there together.
    ///
    /// # Errors
    /// A row that makes no sense, or what `each` says of one.
    pub fn take(
        self,
        message: Vec<u8>,
        versions: &mut UuidSource,
        each: &mut dyn FnMut(TableId, Row) -> Result<(), String>,
    ) -> Result<(), String> {
        let method = self.method;
        self.drain(message, |table, schema, uuid, text| {
            let row = row(method, text, schema, uuid, versions);
            each(table, row.map_err(|error| error.to_string())?)
        })
    }

    /// Takes the rows as images, in the order of tables and UUIDs; what comes last of two about one row
    /// counts. The text goes meanwhile, as with [`AllRows::take`].
    ///
    /// # Errors
    /// A row that makes no sense.
    pub fn images(self, message: Vec<u8>) -> Result<Vec<RowImage>, Error> {
        let mut images = Vec::with_capacity(self.rows.len());
        self.drain(message, |table, schema, uuid, text| {
            let values = updates::values_after(text, schema)?;
            images.push(RowImage { table, uuid, values });
            Ok::<_, Error>(())
        })?;
        updates::keep_first(&mut images);
        Ok(images)
    }

    fn drain<E>(
        self,
        mut message: Vec<u8>,
        mut each: impl FnMut(TableId, &TableSchema, Uuid, Text<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { schema, mut rows, .. } = self;
        while let Some((table, uuid, place)) = rows.pop() {
            let text = weir_json::validate(&message[place.clone()]);
            let text = text.expect("it is part of a message that was read");
            each(table, schema.table(table), uuid, text)?;
            if message.capacity() > place.start + LET_GO_BYTES {
                message.truncate(place.start);
                message.shrink_to_fit();
                rows.shrink_to_fit();
            }
        }
        Ok(())
    }
}

/// One of the first rows.
fn row(
    method: Method,
    text: Text<'_>,
    table: &TableSchema,
    uuid: Uuid,
    versions: &mut UuidSource,
) -> Result<Row, Error> {
    if method != Method::Monitor {
        return updates2::new_row(text, table, uuid, versions);
    }
    let values = updates::values_after(text, table)?.ok_or_else(odd)?;
    Ok(Row::with_values(uuid, versions.next_uuid(), table, values))
}

/// What a message is.
#[derive(Debug)]
pub enum Read {
    /// The message has no rows for who reads it.
    Nothing,
    /// The message has rows.
    News(News),
    /// The message has values of columns that no file keeps.
    Ephemeral(EphemeralRows),
    /// The message has rows that make no sense.
    Wrong(Error),
}

/// Reads rows, wherever that is done.
#[derive(Clone, Debug)]
pub struct RowReader {
    pub(crate) schema: Arc<Schema>,
    /// The request for the first rows, if they are awaited.
    pub(crate) request: Option<u64>,
    pub(crate) method: Method,
    /// The monitor's name.
    pub(crate) monitor: Vec<u8>,
    pub(crate) ephemeral: Option<EphemeralMonitor>,
}

impl RowReader {
    /// Reads a message.
    pub fn read(&self, message: &[u8], versions: &mut UuidSource) -> Read {
        // What asks whether anybody is there has no rows, and is answered by whoever leads the dialogue.
        let said = Session::read(message, &mut Vec::new());
        said.map_or(Read::Nothing, |said| self.read_said(message, &said, versions))
    }

    /// Whether the next rows are the first ones.
    pub fn awaits_first(&self) -> bool {
        self.request.is_some()
    }

    /// What the rows conform to.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Reads a message of this text.
    pub(crate) fn read_said(
        &self,
        text: &[u8],
        said: &Said<'_>,
        versions: &mut UuidSource,
    ) -> Read {
        match self.ephemeral(said) {
            None => {}
            Some(Ok(rows)) => return Read::Ephemeral(rows),
            Some(Err(error)) => return Read::Wrong(error),
        }
        let read = match (said, self.request) {
            (Said::Reply(id, Ok(result)), Some(request)) => {
                let id = id.integer().and_then(|id| u64::try_from(id).ok());
                if id != Some(request) {
                    return Read::Nothing;
                }
                self.first(text, *result, versions)
            }
            (Said::Notice(method, params), None) if *method == self.method.update() => {
                let mut elements = params.elements().into_iter().flatten();
                if !is_named(elements.next(), &self.monitor) || !self.is_whole(*params) {
                    return Read::Nothing;
                }
                self.change(&mut elements, versions)
            }
            _ => return Read::Nothing,
        };
        match read {
            Ok((state, rows)) => Read::News(News { state, schema: Arc::clone(&self.schema), rows }),
            Err(error) => Read::Wrong(error),
        }
    }

    /// Whether a notification has as many parameters as its method has; of the oldest one, as with the
    /// reference, others are passed over.
    fn is_whole(&self, params: Text<'_>) -> bool {
        let count = || params.elements().into_iter().flatten().count();
        self.method != Method::Monitor || count() == 2
    }

    /// What a message says of columns that no file keeps; `None` if it is about something else.
    fn ephemeral(&self, said: &Said<'_>) -> Option<Result<EphemeralRows, Error>> {
        let EphemeralMonitor { request, id: name } = self.ephemeral.as_ref()?;
        let (updates, is_all) = match (said, request) {
            (Said::Reply(id, Ok(result)), Some(request)) => {
                let id = id.integer().and_then(|id| u64::try_from(id).ok());
                (id == Some(*request)).then_some((*result, true))?
            }
            (Said::Notice("update", params), None) => {
                let mut elements = params.elements()?;
                is_named(elements.next(), name).then_some((elements.next()?, false))?
            }
            _ => return None,
        };
        let schema = Arc::clone(&self.schema);
        let images = updates::parse(updates, &schema);
        Some(images.map(|images| EphemeralRows { schema, is_all, images }))
    }

    fn first(
        &self,
        message: &[u8],
        result: Text<'_>,
        versions: &mut UuidSource,
    ) -> Result<(State, Rows), Error> {
        let (is_found, id, rows) = match self.method {
            Method::Each | Method::CondSince => {
                let mut elements = result.elements().into_iter().flatten();
                let is_found = elements.next().and_then(Text::bool).ok_or_else(odd)?;
                let id = uuid(elements.next())?;
                (is_found, id, elements.next().ok_or_else(odd)?)
            }
            Method::Cond | Method::Monitor => (false, Uuid::ZERO, result),
        };
        if is_found {
            let edits = updates2::parse(rows, &self.schema, versions)?;
            return Ok((State { id, index: None }, Rows::Edits(edits)));
        }
        let version = if self.method == Method::Monitor { "" } else { updates2::VERSION };
        let mut all = Vec::new();
        updates::for_each(rows, &self.schema, version, &mut |table, uuid, row| {
            if row.kind() != Kind::Object {
                return Err(updates::shape(&format!("<row-update{version}> is not object")));
            }
            let row = row.as_bytes();
            let start = row.as_ptr().addr() - message.as_ptr().addr();
            all.push((table, uuid, start..start + row.len()));
            Ok(())
        })?;
        let (method, schema) = (self.method, Arc::clone(&self.schema));
        Ok((State { id, index: None }, Rows::All(AllRows { method, schema, rows: all })))
    }

    fn change<'a>(
        &self,
        elements: &mut impl Iterator<Item = Text<'a>>,
        versions: &mut UuidSource,
    ) -> Result<(State, Rows), Error> {
        let id = match self.method {
            Method::Each | Method::CondSince => uuid(elements.next())?,
            Method::Cond | Method::Monitor => Uuid::ZERO,
        };
        if self.method == Method::Each {
            // The low-water mark, which was not asked for.
            elements.next();
        }
        let updates = elements.next().ok_or_else(odd)?;
        let index = elements.next().filter(|_| self.method == Method::Each);
        let index = index.and_then(Text::integer).and_then(|index| u64::try_from(index).ok());
        Ok((
            State { id, index },
            match self.method {
                Method::Monitor => Rows::Images(updates::parse(updates, &self.schema)?),
                _ => Rows::Edits(updates2::parse(updates, &self.schema, versions)?),
            },
        ))
    }
}

/// Whether a monitor's id is this one.
fn is_named(id: Option<Text<'_>>, name: &[u8]) -> bool {
    let mut text = Vec::new();
    id.inspect(|id| id.write(&mut text));
    text == name
}

fn uuid(text: Option<Text<'_>>) -> Result<Uuid, Error> {
    let uuid = text.and_then(|text| Uuid::parse_bytes(text.str()?.as_bytes()));
    uuid.ok_or_else(odd)
}

fn odd() -> Error {
    Error::new("syntax error", "rows of a source in an unknown form")
}
