//! The items of a server's recording.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use weir_net::error::strerror;
use weir_server::Config;
use weir_server::event::{DbId, Event, Now};

use super::event::{self, Recorded};
use super::fields::{Fields, Malformed, put_bytes, put_option, put_result, put_u64};
use crate::vlog::Level;

/// How a run began.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) now: Now,
    /// The version of Weir: another one may decide otherwise.
    pub(crate) version: String,
    pub(crate) seed: [u64; 4],
    /// The configuration that an earlier child of the monitor had saved.
    pub(crate) saved: Option<Vec<u8>>,
    /// `--remote`, in order: a replay with others would not be one.
    pub(crate) remotes: Vec<String>,
    /// How many databases the command line names.
    pub(crate) databases: u64,
    /// What could be kept for clients: it depends on the machine.
    pub(crate) kept_bytes_max: Option<u64>,
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command `exit`.
    Exit,
    /// The server could not start.
    Failed,
    /// A fatal signal.
    Signal(i32),
    /// The command of `--run` ended, with this status of wait(2), or could not be started.
    Command(Result<i32, String>),
}

/// What a recording is made of.
#[derive(Debug)]
pub(crate) enum Item {
    Start(Start),
    Event(Now, Recorded),
    BeginRound,
    EndRound(Now),
    Flush(Now),
    /// These bytes are about to be appended.
    Append {
        db: DbId,
        length: u64,
        digest: u64,
    },
    /// A step with these bytes was appended, or could not be.
    Persist {
        db: DbId,
        step: u64,
        length: u64,
        digest: u64,
        is_written: bool,
    },
    /// An admin command that the shell answers.
    Command {
        name: String,
        args: Vec<String>,
    },
    /// A log line of the shell about what a replay does not have.
    Said {
        module: String,
        level: Level,
        text: String,
    },
    /// The service begins.
    Ready,
    End(End),
}

/// An event of its own as an item.
pub(super) fn event(now: Now, event: &Event) -> Vec<u8> {
    let mut out = vec![1];
    put_now(&mut out, now);
    event::encode(event, &mut out);
    out
}

impl Item {
    /// The bytes of an item that is no event; those are encoded by [`event()`].
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Start(start) => start.encode(&mut out),
            Self::Event(..) => debug_assert!(false, "events are encoded where they happen"),
            Self::BeginRound => out.push(10),
            Self::EndRound(now) => {
                out.push(2);
                put_now(&mut out, *now);
            }
            Self::Flush(now) => {
                out.push(3);
                put_now(&mut out, *now);
            }
            Self::Append { db, length, digest } => {
                out.push(4);
                [db.0, *length, *digest].iter().for_each(|value| put_u64(&mut out, *value));
            }
            Self::Persist { db, step, length, digest, is_written } => {
                out.push(9);
                let values = [db.0, *step, *length, *digest, u64::from(*is_written)];
                values.iter().for_each(|value| put_u64(&mut out, *value));
            }
            Self::Command { name, args } => {
                out.push(5);
                put_bytes(&mut out, name.as_bytes());
                put_texts(&mut out, args);
            }
            Self::Said { module, level, text } => {
                out.push(6);
                for text in [module.as_str(), level.name(), text] {
                    put_bytes(&mut out, text.as_bytes());
                }
            }
            Self::Ready => out.push(7),
            Self::End(end) => {
                out.push(8);
                end.encode(&mut out);
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(bytes);
        let item = match fields.byte()? {
            0 => Self::Start(Start::decode(&mut fields)?),
            1 => Self::Event(now(&mut fields)?, event::decode(&mut fields)?),
            10 => Self::BeginRound,
            2 => Self::EndRound(now(&mut fields)?),
            3 => Self::Flush(now(&mut fields)?),
            4 => Self::Append {
                db: DbId(fields.u64()?),
                length: fields.u64()?,
                digest: fields.u64()?,
            },
            9 => Self::Persist {
                db: DbId(fields.u64()?),
                step: fields.u64()?,
                length: fields.u64()?,
                digest: fields.u64()?,
                is_written: match fields.u64()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                },
            },
            5 => Self::Command { name: fields.text()?, args: fields.list(Fields::text)? },
            6 => Self::Said {
                module: fields.text()?,
                level: Level::parse(&fields.text()?).ok_or(Malformed)?,
                text: fields.text()?,
            },
            7 => Self::Ready,
            8 => Self::End(End::decode(&mut fields)?),
            _ => return Err(Malformed),
        };
        fields.end()?;
        Ok(item)
    }
}

impl Start {
    /// What is to be known of a configuration.
    pub(crate) fn of(now: Now, config: &Config) -> Self {
        Self {
            now,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: config.seed,
            saved: config.saved.clone(),
            remotes: config.remotes.clone(),
            databases: config.databases.len() as u64,
            kept_bytes_max: config.kept_bytes_max.map(|bytes| bytes as u64),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(0);
        put_now(out, self.now);
        put_bytes(out, self.version.as_bytes());
        self.seed.iter().for_each(|word| put_u64(out, *word));
        put_option(out, self.saved.as_deref(), put_bytes);
        put_texts(out, &self.remotes);
        put_u64(out, self.databases);
        put_option(out, self.kept_bytes_max, put_u64);
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            now: now(fields)?,
            version: fields.text()?,
            seed: [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?],
            saved: fields.option(Fields::bytes)?,
            remotes: fields.list(Fields::text)?,
            databases: fields.u64()?,
            kept_bytes_max: fields.option(Fields::u64)?,
        })
    }
}

impl End {
    /// How a command ended.
    pub(crate) fn of_command(result: &io::Result<ExitStatus>) -> Self {
        Self::Command(match result {
            Ok(status) => Ok(status.into_raw()),
            Err(error) => Err(strerror(error)),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Exit => out.push(0),
            Self::Failed => out.push(1),
            Self::Signal(signal) => {
                out.push(2);
                put_u64(out, i64::from(*signal).cast_unsigned());
            }
            Self::Command(result) => {
                out.push(3);
                put_result(out, result.as_ref(), |out, status| {
                    put_u64(out, i64::from(*status).cast_unsigned());
                });
            }
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        Ok(match fields.byte()? {
            0 => Self::Exit,
            1 => Self::Failed,
            2 => Self::Signal(fields.i32()?),
            3 => Self::Command(fields.result(Fields::i32)?),
            _ => return Err(Malformed),
        })
    }
}

fn put_now(out: &mut Vec<u8>, now: Now) {
    put_u64(out, now.monotonic_us);
    put_u64(out, now.wall_ms.cast_unsigned());
}

fn now(fields: &mut Fields<'_>) -> Result<Now, Malformed> {
    Ok(Now { monotonic_us: fields.u64()?, wall_ms: fields.i64()? })
}

fn put_texts(out: &mut Vec<u8>, texts: &[String]) {
    put_u64(out, texts.len() as u64);
    texts.iter().for_each(|text| put_bytes(out, text.as_bytes()));
}
