//! Taking a message apart, with the reference's rules about which members go together.

use std::fmt;

use weir_json::{Kind, Text};

use crate::method::Method;

/// A well-formed JSON-RPC message. Ids and parameters stay JSON text.
#[derive(Clone, Copy)]
pub enum Message<'a> {
    /// A request: it gets exactly one reply.
    Request {
        /// The request's method.
        method: &'a str,
        /// The request's parameters: a JSON array.
        params: Text<'a>,
        /// The request's id, which is not null.
        id: Text<'a>,
    },
    /// A request that gets no reply.
    Notification {
        /// The notification's method.
        method: &'a str,
        /// The notification's parameters: a JSON array.
        params: Text<'a>,
    },
    /// An answer that the request succeeded.
    Reply {
        /// What the server answered.
        result: Text<'a>,
        /// The id of the request that is answered.
        id: Text<'a>,
    },
    /// An answer that the request failed.
    Error {
        /// What failed.
        error: Text<'a>,
        /// The id of the request that failed.
        id: Text<'a>,
    },
}

/// Why something is no JSON-RPC message; the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// The five members; absent and null are the same.
#[derive(Default)]
struct Members<'a> {
    method: Option<Text<'a>>,
    params: Option<Text<'a>>,
    result: Option<Text<'a>>,
    error: Option<Text<'a>>,
    id: Option<Text<'a>>,
}

impl<'a> Members<'a> {
    fn collect(text: Text<'a>) -> Result<Self, Malformed> {
        let members = text.members().ok_or_else(|| bad("message is not a JSON object"))?;
        let mut found = Members::default();
        for (key, value) in members {
            let place = match key.as_ref() {
                b"method" => &mut found.method,
                b"params" => &mut found.params,
                b"result" => &mut found.result,
                b"error" => &mut found.error,
                b"id" => &mut found.id,
                _ => {
                    let key = String::from_utf8_lossy(&key);
                    return Err(bad(format!("message has unexpected member \"{key}\"")));
                }
            };
            // A method that is null is no string, not absent.
            *place = (key.as_ref() == b"method" || value.kind() != Kind::Null).then_some(value);
        }
        Ok(found)
    }
}

fn bad(reason: impl Into<String>) -> Malformed {
    Malformed(reason.into())
}

impl<'a> Message<'a> {
    /// Takes a validated message apart.
    pub fn parse(text: Text<'a>) -> Result<Self, Malformed> {
        let members = Members::collect(text)?;
        let Members { method, params, result, error, id } = members;
        let method = method.map(plain_string).transpose()?;
        if params.is_some_and(|params| params.kind() != Kind::Array) {
            return Err(bad("\"params\" must be JSON array"));
        }
        let kind = match (result, error, id) {
            (Some(_), _, _) => "reply",
            (None, Some(_), _) => "error",
            (None, None, Some(_)) => "request",
            (None, None, None) => "notification",
        };
        let calls = matches!(kind, "request" | "notification");
        for (name, must, is) in [
            ("method", calls, method.is_some()),
            ("params", calls, params.is_some()),
            ("error", kind == "error", error.is_some()),
            ("id", kind != "notification", id.is_some()),
        ] {
            match (must, is) {
                (true, false) => return Err(bad(format!("{kind} must have \"{name}\""))),
                (false, true) => return Err(bad(format!("{kind} must not have \"{name}\""))),
                _ => {}
            }
        }
        match (method, params, result, error, id) {
            (Some(method), Some(params), .., Some(id)) => Ok(Self::Request { method, params, id }),
            (Some(method), Some(params), ..) => Ok(Self::Notification { method, params }),
            (.., Some(result), _, Some(id)) => Ok(Self::Reply { result, id }),
            (.., Some(error), Some(id)) => Ok(Self::Error { error, id }),
            // The table above has told of these.
            _ => Err(bad("message is incomplete")),
        }
    }
}

/// A method name. One with escapes that nobody serves may stay as it is.
fn plain_string<'a>(text: Text<'a>) -> Result<&'a str, Malformed> {
    if text.kind() != Kind::String {
        return Err(bad("method is not a JSON string"));
    }
    let quoted = std::str::from_utf8(text.as_bytes()).unwrap_or("");
    if quoted.contains('\\')
        && let Some(served) = text.str().and_then(|name| Method::parse(&name))
    {
        return Ok(served.name());
    }
    Ok(quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> String {
        let text = weir_json::validate(text.as_bytes()).unwrap();
        match Message::parse(text) {
            Ok(Message::Request { method, .. }) => format!("request {method}"),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Reply { .. }) => "reply".into(),
            Ok(Message::Error { .. }) => "error".into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn null_members_count_as_absent() {
        let cases = [
            (r#"{"id":1,"method":"echo","params":[]}"#, "request echo"),
            (r#"{"id":null,"method":"cancel","params":[1]}"#, "notification cancel"),
            (r#"{"id":1,"method":"\u0065cho","params":[]}"#, "request echo"),
            (r#"{"id":1,"method":"\u0065ch","params":[]}"#, r"request \u0065ch"),
            (r#"{"id":1,"result":{},"error":null}"#, "reply"),
            (r#"{"id":1,"result":null,"error":"x"}"#, "error"),
            (r#"{"id":1,"method":"x","params":null}"#, r#"request must have "params""#),
            (r#"{"id":1,"method":"x","params":{}}"#, r#""params" must be JSON array"#),
            (r#"{"method":"x","params":[],"x":1}"#, r#"message has unexpected member "x""#),
            (r#"{"method":3,"params":{},"id":1}"#, "method is not a JSON string"),
            (r#"{"method":null,"params":[],"id":1}"#, "method is not a JSON string"),
            (r#"{"result":1}"#, r#"reply must have "id""#),
            (r#"{"id":1,"result":null}"#, r#"request must have "method""#),
            (r#"{"id":1,"result":1,"error":2}"#, r#"reply must not have "error""#),
            (r#"{"params":[]}"#, r#"notification must have "method""#),
            (r#"[]"#, "message is not a JSON object"),
        ];
        for (text, expected) in cases {
            assert_eq!(verdict(text), expected, "{text}");
        }
    }
}
