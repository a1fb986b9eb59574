//! The records behind the header.

use std::borrow::Cow;

use weir_data::parser::{ANY, OPTIONAL, Parser, STRING};
use weir_data::{Error, Uuid};
use weir_json::Text;

use super::write::{DataText, EntryText, Members};
use super::{Servers, optional_servers, required_unsigned, unsigned, uuid};
use crate::record::{Magic, Unfinished};

/// One record behind the header of a clustered database's file.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// A remark for people.
    pub comment: Option<Cow<'a, str>>,
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
        let comment = parser.string("comment", STRING | OPTIONAL).map(Cow::Owned);
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

    /// Appends the record to a file; `data` is copied as it is.
    pub fn write(&self, out: &mut Vec<u8>) {
        if let Kind::Entry(entry) = &self.kind {
            let Entry { index, servers, election_timer, data } = entry;
            EntryText {
                comment: self.comment.as_deref(),
                term: self.term,
                index: *index,
                servers: servers.as_ref(),
                election_timer: *election_timer,
                data: data.map(|(data, eid)| (DataText::Whole(data.as_bytes()), eid)),
                is_marked: false,
            }
            .write(out);
            return;
        }
        let record = Unfinished::begin(Magic::Clustered, out);
        let mut members = Members::begin(out);
        members.optional_string("comment", self.comment.as_deref());
        if !matches!(self.kind, Kind::Note(_) | Kind::CommitIndex(_)) {
            members.unsigned("term", self.term);
        }
        match &self.kind {
            Kind::Note(note) => members.string("note", note),
            Kind::CommitIndex(index) => members.unsigned("commit_index", *index),
            Kind::Leader(id) => members.uuid("leader", *id),
            Kind::Vote(id) => members.uuid("vote", *id),
            Kind::Term | Kind::Entry(_) => {}
        }
        members.end();
        record.finish(out, false);
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
