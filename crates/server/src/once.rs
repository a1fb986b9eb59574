//! What `weir_transact`, `weir_outcome` and `weir_explain` ask for (`docs/decisions/013`): from the parameters of a
//! request to an id that its client chose, and to a plain transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;

use weir_data::{Error, Uuid};
use weir_json::{Text, TextBuf};
use weir_wire::Method;

/// Most channels of a connection: their numbers are less.
pub(crate) const CHANNELS_MAX: u16 = 1024;

/// Bits of a UUID that say how it was made (RFC 4122 section 4.1.3), and what random ones have there.
const VERSION_MASK: u128 = 0xf << 76 | 3 << 62;
const RANDOM: u128 = 4 << 76 | 2 << 62;

/// What tells the id of an entry by which a transaction is never to be from the transaction's own.
/// Both are random ones, as all ids of states are.
const NEVER: u128 = 0x6e65_7665_7220_0e69_1d73_2074_6f20_6265;

/// An id that a client chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) id: Uuid,
    /// A state that the client knew before it chose the id.
    pub(crate) since: Uuid,
}

/// What a request asks for that `transact` does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Once {
    /// `weir_transact` without an id: the answer names the state.
    Plain,
    /// `weir_explain`: how the operations would find their rows; nothing comes of them.
    Explain,
    /// `weir_transact` under an id.
    Transact(Chosen),
    /// `weir_outcome`: there are no operations.
    Outcome(Chosen),
}

/// How often the client had heard of each of these locks that it has it now, or has it no longer, since it asked for
/// it. Nothing is known of other locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard(BTreeMap<String, u64>);

/// A request that is a transaction, or about one.
pub(crate) struct Transaction<'m> {
    /// The database's name.
    pub(crate) name: Option<Text<'m>>,
    pub(crate) operations: Vec<Text<'m>>,
    /// `None` for `transact`.
    pub(crate) once: Option<Once>,
    pub(crate) heard: Heard,
    /// Whom of those behind the client the request is for: what different ones ask has no order.
    pub(crate) channel: Option<u16>,
}

impl<'m> Transaction<'m> {
    /// `None` if a request asks for something else.
    ///
    /// # Errors
    /// What is wrong with the parameters, for the client. Those of `transact` are looked at later.
    pub(crate) fn of(method: &str, params: Text<'m>) -> Option<Result<Self, Error>> {
        let mut rest = params.elements().into_iter().flatten();
        match Method::parse(method)? {
            Method::Transact => {
                let name = rest.next();
                Some(Ok(Self::new(name, rest.collect(), None)))
            }
            Method::Explain => {
                let name = rest.next();
                Some(Ok(Self::new(name, rest.collect(), Some(Once::Explain))))
            }
            Method::TransactOnce => Some(Self::of_transact(params)),
            Method::Outcome => Some(Self::of_outcome(params)),
            _ => None,
        }
    }

    fn new(name: Option<Text<'m>>, operations: Vec<Text<'m>>, once: Option<Once>) -> Self {
        Self { name, operations, once, heard: Heard::default(), channel: None }
    }

    /// `[DB, {"id": UUID, "since": UUID, "locks": {LOCK: N}, "channel": N}, OPERATION...]`
    fn of_transact(params: Text<'m>) -> Result<Self, Error> {
        let wrong = |details: &str| Error::syntax(params, format!("weir_transact: {details}"));
        let mut rest = params.elements().into_iter().flatten();
        let name = rest.next();
        let options = rest.next().and_then(Text::members);
        let options = options.ok_or_else(|| wrong("an object with options expected"))?;
        let (mut id, mut since, mut heard, mut channel) = (None, None, Heard::default(), None);
        for (key, value) in options {
            let id_of = || uuid(value).ok_or_else(|| wrong("\"id\" and \"since\" are UUIDs"));
            match &*key {
                b"id" => id = Some(id_of()?),
                b"since" => since = Some(id_of()?),
                b"locks" => {
                    let locks = Heard::of(value);
                    heard = locks.ok_or_else(|| wrong("\"locks\" has a number for each lock"))?;
                }
                b"channel" => channel = Some(channel_of(value).map_err(&wrong)?),
                _ => {
                    return Err(wrong(
                        "the options are \"id\", \"since\", \"locks\" and \"channel\"",
                    ));
                }
            }
        }
        let once = match (id, since) {
            (None, None) => Once::Plain,
            (Some(id), Some(since)) => Once::Transact(Chosen::new(id, since).map_err(wrong)?),
            _ => return Err(wrong("\"id\" and \"since\" go together")),
        };
        let operations: Vec<Text<'m>> = rest.collect();
        // What changes nothing needs no id.
        let once = if weir_engine::is_read_only(&operations) { Once::Plain } else { once };
        Ok(Self { heard, channel, ..Self::new(name, operations, Some(once)) })
    }

    /// `[DB, UUID, UUID, {"channel": N}]`, the last of which may be missing
    fn of_outcome(params: Text<'m>) -> Result<Self, Error> {
        let wrong = |details: &str| Error::syntax(params, format!("weir_outcome: {details}"));
        let mut rest = params.elements().into_iter().flatten();
        let name = rest.next();
        let mut next = || rest.next().and_then(uuid);
        let (Some(id), Some(since)) = (next(), next()) else {
            return Err(wrong("the id of a transaction and that of a state expected"));
        };
        let mut channel = None;
        if let Some(options) = rest.next() {
            let options = options.members().filter(|_| rest.next().is_none());
            for (key, value) in
                options.ok_or_else(|| wrong("three parameters and options expected"))?
            {
                match &*key {
                    b"channel" => channel = Some(channel_of(value).map_err(wrong)?),
                    _ => return Err(wrong("the only option is \"channel\"")),
                }
            }
        }
        let chosen = Chosen::new(id, since).map_err(wrong)?;
        let once = Some(Once::Outcome(chosen));
        Ok(Self { channel, ..Self::new(name, Vec::new(), once) })
    }

    /// The request as one for `transact`; `None` if it is one.
    pub(crate) fn message(&self) -> Option<TextBuf> {
        self.once?;
        let mut text = b"{\"method\":\"transact\",\"params\":[".to_vec();
        let name = self.name.iter();
        for (at, param) in name.chain(&self.operations).enumerate() {
            text.extend_from_slice(if at == 0 { b"" } else { b"," });
            text.extend_from_slice(param.as_bytes());
        }
        text.extend_from_slice(b"],\"id\":null}");
        Some(TextBuf::validate(text).expect("it is made of JSON"))
    }
}

/// Whether the options of a request name a channel, be it one that there can be or not.
pub(crate) fn names_channel(method: &str, params: Text<'_>) -> bool {
    let at = match Method::parse(method) {
        Some(Method::TransactOnce) => 1,
        Some(Method::Outcome) => 3,
        _ => return false,
    };
    let mut options = params.elements().into_iter().flatten().skip(at);
    let members = options.next().and_then(Text::members);
    members.into_iter().flatten().any(|(key, _)| &*key == b"channel")
}

fn channel_of(text: Text<'_>) -> Result<u16, &'static str> {
    let number = text.integer().and_then(|number| u16::try_from(number).ok());
    number
        .filter(|number| *number < CHANNELS_MAX)
        .ok_or("\"channel\" is a whole number from 0 to 1023")
}

fn uuid(text: Text<'_>) -> Option<Uuid> {
    Uuid::parse_bytes(text.str()?.as_bytes())
}

impl Heard {
    fn of(locks: Text<'_>) -> Option<Self> {
        let one = |(name, times): (Cow<'_, [u8]>, Text<'_>)| {
            let name = String::from_utf8(name.into_owned()).ok()?;
            Some((name, u64::try_from(times.integer()?).ok()?))
        };
        locks.members()?.map(one).collect::<Option<_>>().map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client that was told of a lock so often by when it asked had heard of all of that; `None` if it had
    /// yet to be told of something.
    pub(crate) fn is_all(&self, name: &str, told: Option<u64>) -> bool {
        self.0.get(name).is_none_or(|heard| Some(*heard) == told)
    }
}

impl Chosen {
    /// # Errors
    /// Why nobody can have chosen it.
    pub(crate) fn new(id: Uuid, since: Uuid) -> Result<Self, &'static str> {
        let is_random = id.to_u128() & VERSION_MASK == RANDOM;
        is_random.then_some(Self { id, since }).ok_or("the id of a transaction is a random UUID")
    }

    /// The id of the entry by which the transaction is never to be.
    pub(crate) fn never(self) -> Uuid {
        Uuid::from_u128(self.id.to_u128() ^ NEVER & !VERSION_MASK)
    }
}

impl Once {
    pub(crate) fn chosen(self) -> Option<Chosen> {
        match self {
            Self::Plain | Self::Explain => None,
            Self::Transact(chosen) | Self::Outcome(chosen) => Some(chosen),
        }
    }

    /// Whether operations that change nothing, or would fail, mean nothing before it is known what
    /// has come of the id.
    pub(crate) fn is_judged(self) -> bool {
        self.chosen().is_some()
    }

    /// Whether a request asks how it would find its rows.
    pub(crate) fn explains(once: Option<Self>) -> bool {
        once == Some(Self::Explain)
    }

    /// What the client is answered, in front of the results and behind them.
    pub(crate) fn around(self, state: Uuid) -> (Vec<u8>, &'static [u8]) {
        match self {
            Self::Outcome(_) | Self::Explain => (Vec::new(), b""),
            Self::Plain | Self::Transact(_) => {
                (format!("{{\"id\":\"{state}\",\"results\":").into_bytes(), b"}")
            }
        }
    }
}
