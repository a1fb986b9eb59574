//! The wire form of admin commands: JSON-RPC with strings (ovs-appctl(8)).

use weir_json::{Value, object};
use weir_wire::Message;

/// Why a message is no request; the connection is closed then.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The text is no JSON-RPC message, and why.
    Bad(String),
    /// The message is of another kind than a request.
    Unexpected(&'static str),
}

impl Misfit {
    /// The log's module, and the text behind the connection's name.
    pub(crate) fn line(&self) -> (&'static str, String) {
        match self {
            Self::Bad(why) => ("jsonrpc", format!("received bad JSON-RPC message: {why}")),
            Self::Unexpected(kind) => ("unixctl", format!("received unexpected {kind} message")),
        }
    }
}

/// A request.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    /// `Err`: one of so many is no string.
    pub(crate) args: Result<Vec<String>, usize>,
}

impl Request {
    /// Reads one message.
    ///
    /// # Errors
    /// Why it is not a request.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, Misfit> {
        let text = weir_json::validate(message).map_err(|error| Misfit::Bad(error.to_string()))?;
        let parsed = Message::parse(text).map_err(|error| Misfit::Bad(error.to_string()))?;
        let (method, params, id) = match parsed {
            Message::Request { method, params, id } => (method, params, id),
            Message::Notification { .. } => return Err(Misfit::Unexpected("notification")),
            Message::Reply { .. } => return Err(Misfit::Unexpected("reply")),
            Message::Error { .. } => return Err(Misfit::Unexpected("error")),
        };
        let params = params.to_value();
        let params = params.as_array().unwrap_or_default();
        let string = |value: &Value| value.as_str().map(str::to_owned);
        let args = params.iter().map(string).collect::<Option<_>>();
        let args = args.ok_or(params.len());
        Ok(Self { id: id.to_value(), method: method.to_owned(), args })
    }
}

/// The answer to a request. Text that does not end in a newline gets one.
pub(crate) fn reply(id: &Value, reply: Result<String, String>, json: bool) -> Vec<u8> {
    let mut out = Vec::new();
    match reply {
        Ok(text) => {
            let text = Value::from(with_newline(text));
            let result = match json {
                true => object([("reply", text), ("reply-format", Value::from("plain"))]),
                false => text,
            };
            members(&mut out, &[("id", id), ("result", &result), ("error", &Value::Null)]);
        }
        Err(text) => {
            let error = Value::from(with_newline(text));
            members(&mut out, &[("id", id), ("error", &error)]);
        }
    }
    out
}

/// An object in the reference's order of members, which scripts may compare.
fn members(out: &mut Vec<u8>, members: &[(&str, &Value)]) {
    for (number, (name, value)) in members.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b"{\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        value.write(out);
    }
    out.push(b'}');
}

fn with_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Request, Misfit> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn requests_are_strings_in_an_array() {
        let request = parse(r#"{"id":"x","method":"vlog/set","params":["a","b"]}"#).unwrap();
        let args = Ok(vec!["a".to_owned(), "b".to_owned()]);
        let expected = Request { id: Value::from("x"), method: "vlog/set".into(), args };
        assert_eq!(request, expected);
        let request = parse(r#"{"id":1,"method":"version","params":[3]}"#).unwrap();
        assert_eq!(request.args, Err(1));
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let error = r#"message has unexpected member "foo""#;
        let bad = Err(Misfit::Bad(error.to_owned()));
        assert_eq!(parse(r#"{"id":1,"method":"m","params":[],"foo":1}"#), bad);
        let unexpected = |kind| Err(Misfit::Unexpected(kind));
        assert_eq!(parse(r#"{"method":"m","params":[]}"#), unexpected("notification"));
        assert_eq!(parse(r#"{"id":1,"result":"","error":null}"#), unexpected("reply"));
        assert_eq!(parse(r#"{"id":1,"error":"x"}"#), unexpected("error"));
        assert!(parse(r#"{"id":1,"method":"m","params":null}"#).is_err());
        assert!(parse("[]").is_err());
    }

    #[test]
    fn replies_end_in_a_newline_unless_empty() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let id = Value::from(7);
        let done = text(reply(&id, Ok(String::new()), false));
        assert_eq!(done, r#"{"id":7,"result":"","error":null}"#);
        let failed = text(reply(&id, Err("no".into()), true));
        assert_eq!(failed, r#"{"id":7,"error":"no\n"}"#);
        let wrapped = text(reply(&id, Ok("yes\n".into()), true));
        let expected = r#"{"id":7,"result":{"reply":"yes\n","reply-format":"plain"},"error":null}"#;
        assert_eq!(wrapped, expected);
    }
}
