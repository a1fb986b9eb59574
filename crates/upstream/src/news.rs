//! Rows of a source in its messages: the first ones, and what changes.

use std::sync::Arc;

use weir_data::{Error, Row, RowEdit, RowImage, Schema, TableId, Uuid, UuidSource};
use weir_json::Text;
use weir_wire::Message;

use crate::{updates, updates2};

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
    fn update(self) -> &'static str {
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

/// What has become of the rows.
#[derive(Debug, PartialEq)]
pub struct News {
    /// The id of the state; zero if the source has none.
    pub id: Uuid,
    /// What the rows conform to.
    pub schema: Arc<Schema>,
    /// The rows.
    pub rows: Rows,
}

/// Rows of a source.
#[derive(Debug)]
pub enum Rows {
    /// All that there are.
    All(Vec<(TableId, Row)>),
    /// What has changed.
    Edits(Vec<RowEdit>),
    /// Rows that have changed, as they are now.
    Images(Vec<RowImage>),
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All(a), Self::All(b)) => {
                let key = |(table, row): &(TableId, Row)| (*table, row.uuid());
                a.iter().map(key).eq(b.iter().map(key))
            }
            (Self::Edits(a), Self::Edits(b)) => a == b,
            (Self::Images(a), Self::Images(b)) => a == b,
            _ => false,
        }
    }
}

/// What a message is.
#[derive(Debug)]
pub enum Read {
    /// The message has no rows for who reads it.
    Nothing,
    /// The message has rows.
    News(News),
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
}

impl RowReader {
    /// Reads a message.
    pub fn read(&self, message: &[u8], versions: &mut UuidSource) -> Read {
        let parsed = weir_json::validate(message).ok().and_then(|text| Message::parse(text).ok());
        parsed.map_or(Read::Nothing, |message| self.read_message(&message, versions))
    }

    /// Whether the next rows are the first ones.
    pub fn awaits_first(&self) -> bool {
        self.request.is_some()
    }

    /// What the rows conform to.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(crate) fn read_message(&self, message: &Message<'_>, versions: &mut UuidSource) -> Read {
        let read = match (message, self.request) {
            (Message::Reply { result, id }, Some(request)) => {
                let id = id.integer().and_then(|id| u64::try_from(id).ok());
                if id != Some(request) {
                    return Read::Nothing;
                }
                self.first(*result, versions)
            }
            (Message::Notification { method, params }, None) if *method == self.method.update() => {
                let mut elements = params.elements().into_iter().flatten();
                let mut monitor = Vec::new();
                elements.next().inspect(|id| id.write(&mut monitor));
                if monitor != self.monitor {
                    return Read::Nothing;
                }
                self.change(&mut elements, versions)
            }
            _ => return Read::Nothing,
        };
        match read {
            Ok((id, rows)) => Read::News(News { id, schema: Arc::clone(&self.schema), rows }),
            Err(error) => Read::Wrong(error),
        }
    }

    fn first(&self, result: Text<'_>, versions: &mut UuidSource) -> Result<(Uuid, Rows), Error> {
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
            return Ok((id, Rows::Edits(edits)));
        }
        let mut all = Vec::new();
        if self.method == Method::Monitor {
            for RowImage { table, uuid, values } in updates::parse(rows, &self.schema)? {
                let schema = self.schema.table(table);
                let values = values.ok_or_else(odd)?;
                all.push((table, Row::with_values(uuid, versions.next_uuid(), schema, values)));
            }
        } else {
            let mut push = |table, row| {
                all.push((table, row));
                Ok(())
            };
            updates2::for_rows(rows, &self.schema, versions, &mut push)?;
        }
        Ok((id, Rows::All(all)))
    }

    fn change<'a>(
        &self,
        elements: &mut impl Iterator<Item = Text<'a>>,
        versions: &mut UuidSource,
    ) -> Result<(Uuid, Rows), Error> {
        let id = match self.method {
            Method::Each | Method::CondSince => uuid(elements.next())?,
            Method::Cond | Method::Monitor => Uuid::ZERO,
        };
        if self.method == Method::Each {
            // The low-water mark, which was not asked for.
            elements.next();
        }
        let updates = elements.next().ok_or_else(odd)?;
        Ok((
            id,
            match self.method {
                Method::Monitor => Rows::Images(updates::parse(updates, &self.schema)?),
                _ => Rows::Edits(updates2::parse(updates, &self.schema, versions)?),
            },
        ))
    }
}

fn uuid(text: Option<Text<'_>>) -> Result<Uuid, Error> {
    let uuid = text.and_then(|text| Uuid::parse_bytes(text.str()?.as_bytes()));
    uuid.ok_or_else(odd)
}

fn odd() -> Error {
    Error::new("syntax error", "rows of a source in an unknown form")
}
