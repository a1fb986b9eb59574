//! `--record` and `--replay`: what comes in from servers and from ovs-appctl, written down or had
//! again. The form of the file is `weir_host::recording`'s.
//!
//! A client does one thing at a time, so what it gets is one sequence: connections that were made
//! or not, what was read from them, commands. A replay takes each from the recording where the run
//! took it from outside; what it sends goes nowhere.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::rc::Rc;

use weir_host::AdminRequest;
use weir_host::recording::{
    Fields, Malformed, Reader, Recording, Writer, put_bytes, put_result, put_u64,
};
use weir_host::vlog::{Level, Vlog};
use weir_server::event::CommandId;

use super::PROGRAM;
use super::address::Stream;

/// All that came in from outside in one run, in its order: written down, or taken instead of the
/// world (`--record`, `--replay`).
pub(crate) struct Tape {
    state: RefCell<State>,
    log: Vlog,
}

enum State {
    /// Nobody asked for one, or it came to a bad end.
    Off,
    /// The first connection opens it.
    Closed(Recording),
    Recording(Writer),
    Replaying(Replay),
}

struct Replay {
    items: Reader<BufReader<File>>,
    path: PathBuf,
    /// The next item, once it was looked at.
    next: Option<Item>,
}

/// One thing that came in from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// A connection to a server and the server's name in messages, or why there was none.
    Connected(String, Result<String, Trouble>),
    /// What a read brought; nothing is the end.
    Read(Result<Vec<u8>, Trouble>),
    /// A command of ovs-appctl; none is `exit`.
    Admin(Option<(String, Vec<String>)>),
}

/// An error of the system: its number, or its text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trouble {
    Number(i32),
    Text(String),
}

/// What an admin command of a recording was.
pub(super) enum Command {
    Request(AdminRequest),
    Exit,
}

impl Tape {
    /// A tape as the command line asks for it.
    pub(super) fn new(recording: Recording, log: Vlog) -> Rc<Self> {
        let state = match recording {
            Recording::Off => State::Off,
            other => State::Closed(other),
        };
        Rc::new(Self { state: RefCell::new(state), log })
    }

    /// Whether nothing comes from outside.
    pub(super) fn is_replay(&self) -> bool {
        matches!(&*self.state.borrow(), State::Replaying(_) | State::Closed(Recording::Replay(_)))
    }

    /// A connection and what messages call the server: made by `connect`, or as the run had it.
    pub(super) fn connect(
        &self,
        server: &str,
        connect: impl FnOnce() -> io::Result<(Stream, String)>,
    ) -> io::Result<(Stream, String)> {
        self.open()?;
        if self.is_replay() {
            return self.connected(server);
        }
        let result = connect();
        if self.is_recording() {
            let noted = result.as_ref().map(|(_, name)| name.clone()).map_err(Trouble::of);
            self.write(&Item::Connected(server.to_owned(), noted));
        }
        result
    }

    fn connected(&self, server: &str) -> io::Result<(Stream, String)> {
        let is_same = |item: &Item| matches!(item, Item::Connected(name, _) if name == server);
        match self.take(is_same) {
            Ok(Some(Item::Connected(_, Ok(name)))) => {
                let nowhere = File::options().write(true).open("/dev/null")?;
                Ok((Stream::Nowhere(nowhere), name))
            }
            Ok(Some(Item::Connected(_, Err(trouble)))) => Err(trouble.into_error()),
            Ok(_) => {
                let text = format!("{server}: no connection to it is recorded here");
                self.log.log("ovs_replay", Level::Err, &text);
                Err(rustix::io::Errno::NOENT.into())
            }
            Err(text) => Err(io::Error::other(text)),
        }
    }

    /// Reads from a connection, or what the run had read from it.
    pub(super) fn read(&self, stream: &mut Stream, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if self.is_replay() {
            return match self.take(|item| matches!(item, Item::Read(_))) {
                Ok(Some(Item::Read(Ok(bytes)))) => {
                    buffer.extend_from_slice(&bytes);
                    Ok(bytes.len())
                }
                Ok(Some(Item::Read(Err(trouble)))) => Err(trouble.into_error()),
                Ok(_) => Err(io::Error::other("the recording ends here")),
                Err(text) => Err(io::Error::other(text)),
            };
        }
        let before = buffer.len();
        let result = stream.read_to(buffer);
        if self.is_recording() {
            let read = buffer.get(before..).unwrap_or_default().to_vec();
            self.write(&Item::Read(result.as_ref().map(|_| read).map_err(Trouble::of)));
        }
        result
    }

    /// Writes down that an admin command came.
    pub(super) fn note_command(&self, request: Option<&AdminRequest>) {
        if self.is_recording() {
            let command = request.map(|request| (request.name.clone(), request.args.clone()));
            self.write(&Item::Admin(command));
        }
    }

    /// The command that came at this place in the run, if one did.
    pub(super) fn command(&self) -> Option<Command> {
        match self.take(|item| matches!(item, Item::Admin(_))) {
            Ok(Some(Item::Admin(Some((name, args))))) => {
                Some(Command::Request(AdminRequest { id: CommandId(0), name, args }))
            }
            Ok(Some(Item::Admin(None))) => Some(Command::Exit),
            _ => None,
        }
    }

    fn is_recording(&self) -> bool {
        matches!(&*self.state.borrow(), State::Recording(_))
    }

    /// Opens the file, if that is still to be done.
    fn open(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let opened = match &*state {
            State::Closed(Recording::Record(directory)) => {
                Writer::create(directory, PROGRAM).map(State::Recording)
            }
            State::Closed(Recording::Replay(directory)) => {
                let opened = Reader::open(directory, PROGRAM);
                let opened = opened.map_err(|(path, error)| (path, error.into_io()));
                opened.map(|(items, path)| State::Replaying(Replay { items, path, next: None }))
            }
            _ => return Ok(()),
        };
        match opened {
            Ok(opened) => {
                *state = opened;
                Ok(())
            }
            Err((path, error)) => {
                let reason = crate::program::strerror(&error);
                let text = format!("{}: fopen failed: {reason}", path.display());
                self.log.log("ovs_replay", Level::Err, &text);
                Err(error)
            }
        }
    }

    fn write(&self, item: &Item) {
        let mut state = self.state.borrow_mut();
        let State::Recording(writer) = &mut *state else { return };
        if let Err(error) = writer.write(&item.encode()) {
            let text = format!("{error}; the recording ends here");
            self.log.log("ovs_replay", Level::Err, &text);
            *state = State::Off;
        }
    }

    /// The next item of the recording, if it is the one that is wanted; it stays otherwise.
    fn take(&self, is_wanted: impl Fn(&Item) -> bool) -> Result<Option<Item>, String> {
        let mut state = self.state.borrow_mut();
        let State::Replaying(replay) = &mut *state else { return Ok(None) };
        if replay.next.is_none() {
            let told = |what: String| format!("{}: {what}", replay.path.display());
            let offset = replay.items.offset();
            let item = replay.items.next_item().map_err(|error| told(error.to_string()))?;
            let item = item.map(|item| Item::decode(&item)).transpose();
            replay.next = item.map_err(|_| told(format!("damaged at offset {offset}")))?;
        }
        Ok(replay.next.take_if(|item| is_wanted(item)))
    }
}

impl Trouble {
    fn of(error: &io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Text(error.to_string()), Self::Number)
    }

    fn into_error(self) -> io::Error {
        match self {
            Self::Number(number) => io::Error::from_raw_os_error(number),
            Self::Text(text) => io::Error::other(text),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let number = match self {
            Self::Number(number) => Ok(*number),
            Self::Text(text) => Err(text),
        };
        put_result(out, number, |out, number| put_u64(out, i64::from(number).cast_unsigned()));
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let number = |fields: &mut Fields<'_>| {
            i32::try_from(fields.u64()?.cast_signed()).map_err(|_| Malformed)
        };
        Ok(fields.result(number)?.map_or_else(Self::Text, Self::Number))
    }
}

impl Item {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![];
        match self {
            Self::Connected(server, result) => {
                out.push(1);
                put_bytes(&mut out, server.as_bytes());
                out.push(u8::from(result.is_ok()));
                match result {
                    Ok(name) => put_bytes(&mut out, name.as_bytes()),
                    Err(trouble) => trouble.put(&mut out),
                }
            }
            Self::Read(result) => {
                out.extend_from_slice(&[2, u8::from(result.is_ok())]);
                match result {
                    Ok(bytes) => put_bytes(&mut out, bytes),
                    Err(trouble) => trouble.put(&mut out),
                }
            }
            Self::Admin(command) => {
                out.extend_from_slice(&[3, u8::from(command.is_some())]);
                if let Some((name, args)) = command {
                    put_bytes(&mut out, name.as_bytes());
                    put_u64(&mut out, args.len() as u64);
                    args.iter().for_each(|arg| put_bytes(&mut out, arg.as_bytes()));
                }
            }
        }
        out
    }

    fn decode(item: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(item);
        let item = match fields.byte()? {
            1 => {
                let server = fields.text()?;
                let is_good = fields.flag()?;
                let result =
                    if is_good { Ok(fields.text()?) } else { Err(Trouble::read(&mut fields)?) };
                Self::Connected(server, result)
            }
            2 if fields.flag()? => Self::Read(Ok(fields.bytes()?)),
            2 => Self::Read(Err(Trouble::read(&mut fields)?)),
            3 if fields.flag()? => Self::Admin(Some((fields.text()?, fields.list(Fields::text)?))),
            3 => Self::Admin(None),
            _ => return Err(Malformed),
        };
        fields.end()?;
        Ok(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_as_they_were_written() {
        let error = io::Error::from_raw_os_error(111);
        for item in [
            Item::Connected("punix:s".to_owned(), Ok("unix#0".to_owned())),
            Item::Connected("tcp:h:1".to_owned(), Err(Trouble::of(&error))),
            Item::Read(Ok(b"{}".to_vec())),
            Item::Read(Err(Trouble::Text("no".to_owned()))),
            Item::Admin(Some(("lock".to_owned(), vec!["a".to_owned(), String::new()]))),
            Item::Admin(None),
        ] {
            let bytes = item.encode();
            assert_eq!(Item::decode(&bytes), Ok(item));
            for end in 0..bytes.len() {
                assert_eq!(Item::decode(&bytes[..end]), Err(Malformed), "{bytes:?} cut at {end}");
            }
        }
        assert_eq!(Trouble::of(&error).into_error().raw_os_error(), Some(111));
    }
}
