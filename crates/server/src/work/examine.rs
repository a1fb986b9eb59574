//! What a big message is, found out by a helper.

use weir_json::{Text, TextBuf};
use weir_monitor::Prepared;
use weir_wire::Message;

use crate::once::{Heard, Once, Transaction};
use crate::work::Nature;

/// The result of a [`Work::Examine`](crate::work::Work::Examine): the message and what it turned out to be, or why it is no
/// JSON, in the reference's words.
pub struct Examined(pub(crate) Result<(TextBuf, Content), String>);

/// What a big message turned out to be.
pub(crate) enum Content {
    /// A transaction on the database of this name; the request's id as JSON text.
    Transact {
        db: String,
        id: Vec<u8>,
        nature: Nature,
        /// What `transact` does not know, and the message without that.
        once: Option<(Once, TextBuf)>,
        heard: Heard,
        channel: Option<u16>,
    },
    /// `echo`: the request's id, and the result.
    Echo { id: Vec<u8>, result: Vec<u8> },
    /// Anything else.
    Other,
}

/// Looks at what a message asks for.
pub(crate) fn examine(text: Text<'_>) -> Content {
    let (method, params, id) = match Message::parse(text) {
        Ok(Message::Request { method, params, id }) => (method, params, id),
        _ => return Content::Other,
    };
    let mut request = Vec::new();
    id.write(&mut request);
    if let Some(Ok(asked)) = Transaction::of(method, params) {
        let Some(db) = asked.name.and_then(Text::str) else { return Content::Other };
        let nature = Nature::of(&asked.operations);
        let once = asked.once.zip(asked.message());
        let (db, heard, channel) = (db.into_owned(), asked.heard, asked.channel);
        return Content::Transact { db, id: request, nature, once, heard, channel };
    }
    match method {
        "echo" => {
            let mut result = Vec::new();
            params.write(&mut result);
            Content::Echo { id: request, result }
        }
        _ => Content::Other,
    }
}

/// [`Work::Prepare`](crate::work::Work::Prepare)
pub struct Prepare {
    pub(crate) message: TextBuf,
    pub(crate) prepare: weir_monitor::Prepare,
}

/// The result of a [`Work::Prepare`](crate::work::Work::Prepare): the message, and its conditions, unless nobody waits for
/// them any more.
pub struct Ready(pub(crate) Option<(TextBuf, Box<Prepared>)>);

impl Prepare {
    pub(crate) fn run(self) -> Ready {
        let Self { message, prepare } = self;
        let prepared = requests(message.text()).map(|requests| Box::new(prepare.run(requests)));
        Ready(prepared.map(|prepared| (message, prepared)))
    }
}

/// What a request asks of monitors: in all their methods it comes behind two other parameters.
fn requests(message: Text<'_>) -> Option<Text<'_>> {
    let Ok(Message::Request { params, .. }) = Message::parse(message) else { return None };
    params.elements()?.nth(2)
}
