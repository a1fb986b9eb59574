//! Bytes of a connection to what they say.

use std::sync::Arc;

use weir_data::Uuid;
use weir_log::clustered::{Servers, check_address};

use super::encode::content;
use super::frame::{Begin, Frame, Step};
use super::hello::{self, Hello};
use super::probes::Probes;
use super::{FRAME_BYTES_MAX, Malformed};
use crate::entry::{Content, ELECTION_TIMER_MS, Entry, Text};
use crate::ids::{PLACE_MAX, Position};

/// Entries in one message, servers of one list, and addresses in one answer are no more: what is small on the
/// wire is not large in memory.
pub(crate) const THINGS_MAX: u64 = 1 << 20;

/// Longest context of one message of the library, in bytes: it comes back behind numbers that may be longer.
const CONTEXT_BYTES_MAX: usize = 64;

/// So many bytes are kept for what comes next, whatever the longest frame was.
const KEPT_BYTES: usize = 1 << 20;

/// What has come on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Hello(Hello),
    Frame(Frame),
    /// The reference's server asks whether anybody is there: this is the answer.
    Probe(Vec<u8>),
}

#[derive(Debug)]
enum State {
    /// Nothing has been said yet.
    Greeting,
    /// A member of this kind has greeted.
    Frames,
    /// The reference's server has greeted: of what follows only probes are for us.
    Deaf(Probes),
}

/// Takes the bytes of one connection apart.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    bytes: Vec<u8>,
    /// How many of them have been taken.
    taken: usize,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { state: State::Greeting, bytes: Vec::new(), taken: 0 }
    }

    /// Takes over what has come.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next thing that has come as a whole.
    pub(crate) fn next(&mut self) -> Result<Option<Said>, Malformed> {
        let said = self.find()?;
        if said.is_none() {
            self.let_taken_go();
        }
        Ok(said)
    }

    /// Nothing more may ever come on a connection that has brought something long.
    fn let_taken_go(&mut self) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        if self.bytes.len() <= KEPT_BYTES {
            self.bytes.shrink_to(KEPT_BYTES);
        }
    }

    fn find(&mut self) -> Result<Option<Said>, Malformed> {
        match &mut self.state {
            State::Deaf(probes) => {
                let taken = std::mem::take(&mut self.taken);
                let bytes = std::mem::take(&mut self.bytes);
                probes.feed(&bytes[taken..])?;
                Ok(probes.next().map(Said::Probe))
            }
            State::Greeting => {
                let rest = &self.bytes[self.taken..];
                let Some((said, len)) = hello::parse(rest)? else { return Ok(None) };
                self.taken += len;
                if let Said::Hello(hello) = &said {
                    let is_ours = hello.lane.is_some();
                    let deaf = || State::Deaf(Probes::default());
                    self.state = if is_ours { State::Frames } else { deaf() };
                }
                Ok(Some(said))
            }
            State::Frames => {
                let rest = &self.bytes[self.taken..];
                let Some(head) = rest.first_chunk::<4>() else { return Ok(None) };
                let len = u32::from_le_bytes(*head) as usize;
                if len == 0 || len > FRAME_BYTES_MAX {
                    return Err(Malformed(format!("frame of {len} bytes")));
                }
                let Some(frame) = rest.get(4..4 + len) else { return Ok(None) };
                let mut body = Body { rest: &frame[1..] };
                let said = body.frame(frame[0])?;
                self.taken += 4 + len;
                Ok(Some(Said::Frame(said)))
            }
        }
    }
}

struct Body<'a> {
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    fn frame(&mut self, kind: u8) -> Result<Frame, Malformed> {
        let frame = match kind {
            Frame::STEP => Frame::Step(self.step()?),
            Frame::BEGIN => Frame::Begin(self.begin()?),
            Frame::PIECE => {
                let (last, offset) = (self.position()?, self.number()?);
                Frame::Piece { last, offset, bytes: std::mem::take(&mut self.rest).to_vec() }
            }
            Frame::HAVE => Frame::Have { last: self.position()?, upto: self.number()? },
            Frame::JOIN => {
                let (address, has_before) = (self.string()?, self.flag()?);
                let replaces = has_before.then(|| self.uuid()).transpose()?;
                Frame::Join { address, replaces }
            }
            Frame::JOIN_REPLY => {
                let (success, comment) = (self.flag()?, self.string()?);
                let remotes = (0..self.things()?).map(|_| self.string());
                Frame::JoinReply { success, comment, remotes: remotes.collect::<Result<_, _>>()? }
            }
            Frame::REMOVE => Frame::Remove { server: self.uuid()? },
            Frame::REMOVE_REPLY => {
                let (server, success) = (self.uuid()?, self.flag()?);
                Frame::RemoveReply { server, success, comment: self.string()? }
            }
            Frame::MESSAGE => Frame::Message(std::mem::take(&mut self.rest).to_vec()),
            Frame::LOST => Frame::Lost,
            _ => return Err(Malformed(format!("frame of kind {kind}"))),
        };
        if self.rest.is_empty() {
            Ok(frame)
        } else {
            Err(Malformed(format!("{} bytes behind a frame of kind {kind}", self.rest.len())))
        }
    }

    fn step(&mut self) -> Result<Step, Malformed> {
        let (kind, reject) = (self.byte()?, self.flag()?);
        let mut step = Step { kind, reject, ..Step::default() };
        step.term = self.place()?;
        step.log_term = self.place()?;
        step.index = self.place()?;
        step.commit = self.place()?;
        step.commit_term = self.place()?;
        step.request_snapshot = self.place()?;
        step.reject_hint = self.place()?;
        step.synced = self.place()?;
        step.context = self.bytes()?.to_vec();
        if step.context.len() > CONTEXT_BYTES_MAX {
            return Err(Malformed(format!("context of {} bytes", step.context.len())));
        }
        step.entries = (0..self.things()?).map(|_| self.entry()).collect::<Result<_, _>>()?;
        Ok(step)
    }

    fn entry(&mut self) -> Result<Entry, Malformed> {
        let at = self.position()?;
        let content = match self.byte()? {
            content::EMPTY => Content::Empty,
            content::DATA => Content::Data { eid: self.uuid()?, text: self.data()? },
            content::SERVERS => Content::Servers(Arc::new(self.servers()?)),
            content::ELECTION_TIMER => Content::ElectionTimer(self.election_timer()?),
            kind => return Err(Malformed(format!("entry of kind {kind}"))),
        };
        Ok(Entry { at, content })
    }

    /// What goes to the file as it is, and must be read from there.
    fn data(&mut self) -> Result<Text, Malformed> {
        let bytes = self.bytes()?;
        let text = weir_json::validate(bytes).map_err(|error| Malformed(error.to_string()))?;
        if text.array::<2>().is_none() {
            return Err(Malformed("data that is no pair of schema and transaction".into()));
        }
        Ok(Text::new(bytes.to_vec()))
    }

    fn begin(&mut self) -> Result<Begin, Malformed> {
        let begin = Begin {
            term: self.place()?,
            last: self.position()?,
            eid: self.uuid()?,
            servers: Arc::new(self.servers()?),
            election_timer: self.election_timer()?,
            len: self.place()?,
        };
        let Position { term, index } = begin.last;
        if term == 0 || index == 0 || term > begin.term || begin.len == 0 {
            return Err(Malformed(format!(
                "snapshot of {} bytes up to entry {index} of term {term}, in term {}",
                begin.len, begin.term
            )));
        }
        Ok(begin)
    }

    fn servers(&mut self) -> Result<Servers, Malformed> {
        let servers = (0..self.things()?).map(|_| Ok((self.uuid()?, self.address()?)));
        let servers: Servers = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(Malformed("a cluster without servers".into()));
        }
        Ok(servers)
    }

    fn address(&mut self) -> Result<String, Malformed> {
        let address = self.string()?;
        check_address(&address).map_err(|error| Malformed(error.to_string()))?;
        Ok(address)
    }

    fn election_timer(&mut self) -> Result<u64, Malformed> {
        let ms = self.number()?;
        let is_good = ELECTION_TIMER_MS.contains(&ms);
        is_good.then_some(ms).ok_or_else(|| Malformed(format!("election timer of {ms} ms")))
    }

    fn position(&mut self) -> Result<Position, Malformed> {
        Ok(Position { term: self.place()?, index: self.place()? })
    }

    /// A term or an index.
    fn place(&mut self) -> Result<u64, Malformed> {
        let n = self.number()?;
        (n <= PLACE_MAX).then_some(n).ok_or_else(|| Malformed(format!("term or index {n}")))
    }

    /// A number of things that need room in memory each.
    fn things(&mut self) -> Result<u64, Malformed> {
        let count = self.count()?;
        let is_good = count <= THINGS_MAX;
        is_good.then_some(count).ok_or_else(|| Malformed(format!("{count} things in one message")))
    }

    /// A number of things of at least a byte each.
    fn count(&mut self) -> Result<u64, Malformed> {
        let count = self.number()?;
        let fits = usize::try_from(count).is_ok_and(|count| count <= self.rest.len());
        fits.then_some(count).ok_or_else(Self::short)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let is_lost = shift == 63 && byte > 1;
                return if is_lost { Err(Malformed("number too long".into())) } else { Ok(n) };
            }
        }
        Err(Malformed("number too long".into()))
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed(format!("flag {other}"))),
        }
    }

    fn string(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Malformed("text that is not UTF-8".into()))
    }

    fn uuid(&mut self) -> Result<Uuid, Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<16>().ok_or_else(Self::short)?;
        self.rest = rest;
        Ok(Uuid::from_u128(u128::from_be_bytes(*head)))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(self.count()?).expect("it is no more than the bytes there are");
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (head, rest) = self.rest.split_first().ok_or_else(Self::short)?;
        self.rest = rest;
        Ok(*head)
    }

    fn short() -> Malformed {
        Malformed("frame that ends too early".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_long_message_goes_when_it_has_been_taken() {
        let body = vec![0; 4 * KEPT_BYTES];
        let mut bytes = ((body.len() + 1) as u32).to_le_bytes().to_vec();
        bytes.push(Frame::MESSAGE);
        bytes.extend_from_slice(&body);
        let mut decoder = Decoder { state: State::Frames, bytes: vec![], taken: 0 };
        for piece in bytes.chunks(KEPT_BYTES) {
            assert_eq!(decoder.next(), Ok(None));
            decoder.feed(piece);
        }
        assert_eq!(decoder.next(), Ok(Some(Said::Frame(Frame::Message(body)))));
        assert_eq!(decoder.next(), Ok(None));
        assert!(decoder.bytes.is_empty() && decoder.bytes.capacity() <= KEPT_BYTES);
    }
}
