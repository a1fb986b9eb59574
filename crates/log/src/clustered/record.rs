//! The records behind the header.

use weir_data::parser::{ANY, OPTIONAL, Parser, STRING};
use weir_data::{Error, Uuid};
use weir_json::{Text, Value};

use super::{Servers, optional_servers, required_unsigned, servers_value, unsigned, uuid};

/// One record behind the header of a clustered database's file.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// A remark for people.
    pub comment: Option<String>,
    /// The term that the record belongs to; 0 for notes and commit indexes, which have none.
    pub term: u64,
    /// What the record says.
    pub kind: Kind<'a>,
}

/// What a record says.
#[derive(Clone, Debug)]
pub enum Kind<'a> {
    /// `left` ends the file's use; anything else is for people.
    Note(String),
    /// Entries up to this index are committed.
    CommitIndex(u64),
    /// The record's term has begun.
    Term,
    /// The server of this id leads in the record's term.
    Leader(Uuid),
    /// The file's server votes for the server of this id in the record's term.
    Vote(Uuid),
    /// An entry of the log; one whose index is there already replaces it and all behind it.
    Entry(Entry<'a>),
}

/// An entry of the cluster's log.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The entry's index in the log.
    pub index: u64,
    /// The servers from here on, if they change.
    pub servers: Option<Servers>,
    /// The election timer from here on in milliseconds, if it changes.
    pub election_timer: Option<u64>,
    /// `[SCHEMA, TRANSACTION]` and its id, to be taken apart by [`super::Data::parse`].
    pub data: Option<(Text<'a>, Uuid)>,
}

impl<'a> Record<'a> {
    /// Parses a record.
    ///
    /// # Errors
    /// In the words of the reference.
    pub fn parse(text: Text<'a>) -> Result<Self, Error> {
        let mut parser = Parser::new(text, &"raft log record");
        let comment = parser.string("comment", STRING | OPTIONAL);
        let (term, kind) = match parser.string("note", STRING | OPTIONAL) {
            Some(note) => (0, Some(Kind::Note(note))),
            None => match unsigned(&mut parser, "commit_index") {
                Some(index) => (0, Some(Kind::CommitIndex(index))),
                None => {
                    let term = required_unsigned(&mut parser, "term");
                    (term, in_term(&mut parser)?)
                }
            },
        };
        parser.finish()?;
        let kind = kind.ok_or_else(|| Error::syntax(text, "Parsing raft log record failed."))?;
        Ok(Self { comment, term, kind })
    }

    /// Appends the record to a file.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut members = vec![];
        members.extend(self.comment.as_deref().map(|text| ("comment", Value::from(text))));
        if !matches!(self.kind, Kind::Note(_) | Kind::CommitIndex(_)) {
            members.push(("term", self.term.cast_signed().into()));
        }
        match &self.kind {
            Kind::Note(note) => members.push(("note", Value::from(note.as_str()))),
            Kind::CommitIndex(index) => members.push(("commit_index", index.cast_signed().into())),
            Kind::Term => {}
            Kind::Leader(id) => members.push(("leader", Value::from(id.to_string()))),
            Kind::Vote(id) => members.push(("vote", Value::from(id.to_string()))),
            Kind::Entry(entry) => {
                members.push(("index", entry.index.cast_signed().into()));
                members.extend(entry.servers.as_ref().map(|s| ("servers", servers_value(s))));
                let timer = entry.election_timer.map(u64::cast_signed);
                members.extend(timer.map(|ms| ("election_timer", ms.into())));
                if let Some((data, eid)) = &entry.data {
                    members.push(("data", data.to_value()));
                    members.push(("eid", Value::from(eid.to_string())));
                }
            }
        }
        let members = members.into_iter().map(|(name, value)| (name.to_owned(), value));
        super::write(out, &Value::Object(members.collect()));
    }
}

/// What stands beside the term.
fn in_term<'a>(parser: &mut Parser<'a, '_>) -> Result<Option<Kind<'a>>, Error> {
    if let Some(leader) = uuid(parser, "leader", true) {
        if leader == Uuid::ZERO {
            parser.complain("record says leader is all-zeros SID");
        }
        return Ok(Some(Kind::Leader(leader)));
    }
    if let Some(vote) = uuid(parser, "vote", true) {
        if vote == Uuid::ZERO {
            parser.complain("record votes for all-zeros SID");
        }
        return Ok(Some(Kind::Vote(vote)));
    }
    let Some(index) = unsigned(parser, "index") else { return Ok(Some(Kind::Term)) };
    let servers = optional_servers(parser, "servers", true)?;
    let election_timer = unsigned(parser, "election_timer");
    let data = match parser.member("data", ANY | OPTIONAL) {
        Some(data) => uuid(parser, "eid", false).map(|eid| Some((data, eid))),
        None => Some(None),
    };
    Ok(data.map(|data| Kind::Entry(Entry { index, servers, election_timer, data })))
}
