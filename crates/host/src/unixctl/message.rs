//! The wire form of admin commands: JSON-RPC with strings (surface of `unixctl`).

use weir_json::{Value, object};

/// A request.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    /// `Err`: one of them is no string.
    pub(crate) args: Result<Vec<String>, String>,
}

impl Request {
    /// Reads one message.
    ///
    /// # Errors
    /// Why it is not a request; the connection is to be closed then.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, String> {
        let value = Value::parse(message).map_err(|error| error.to_string())?;
        let members = value.as_object().ok_or("message is not a JSON object")?;
        let known = ["method", "params", "result", "error", "id"];
        if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("message has unexpected member \"{name}\""));
        }
        let present = |name| value.get(name).filter(|value| **value != Value::Null);
        let method = present("method").and_then(Value::as_str).ok_or("message lacks \"method\"")?;
        let params = present("params").and_then(Value::as_array);
        let params = params.ok_or("\"params\" must be JSON array")?;
        let id = present("id").ok_or("request must have \"id\"")?.clone();
        let string = |value: &Value| value.as_str().map(str::to_owned);
        let args = params.iter().map(string).collect::<Option<_>>();
        let args = args.ok_or_else(|| format!("\"{method}\" command has non-string argument"));
        Ok(Self { id, method: method.to_owned(), args })
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
            object([("id", id.clone()), ("result", result), ("error", Value::Null)])
                .write(&mut out);
        }
        Err(text) => {
            let error = Value::from(with_newline(text));
            object([("id", id.clone()), ("error", error)]).write(&mut out);
        }
    }
    out
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

    fn parse(text: &str) -> Result<Request, String> {
        Request::parse(text.as_bytes())
    }

    #[test]
    fn requests_are_strings_in_an_array() {
        let request = parse(r#"{"id":"x","method":"vlog/set","params":["a","b"]}"#).unwrap();
        let args = Ok(vec!["a".to_owned(), "b".to_owned()]);
        let expected = Request { id: Value::from("x"), method: "vlog/set".into(), args };
        assert_eq!(request, expected);
        let request = parse(r#"{"id":1,"method":"version","params":[3]}"#).unwrap();
        let error = "\"version\" command has non-string argument";
        assert_eq!(request.args, Err(error.to_owned()));
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        let error = r#"message has unexpected member "foo""#;
        assert_eq!(parse(r#"{"id":1,"method":"m","params":[],"foo":1}"#), Err(error.to_owned()));
        assert!(parse(r#"{"method":"m","params":[]}"#).is_err());
        assert!(parse(r#"{"id":1,"method":"m","params":null}"#).is_err());
        assert!(parse(r#"{"id":1,"result":"","error":null}"#).is_err());
        assert!(parse("[]").is_err());
    }

    #[test]
    fn replies_end_in_a_newline_unless_empty() {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let id = Value::from(7);
        let done = text(reply(&id, Ok(String::new()), false));
        assert_eq!(done, r#"{"error":null,"id":7,"result":""}"#);
        let failed = text(reply(&id, Err("no".into()), true));
        assert_eq!(failed, r#"{"error":"no\n","id":7}"#);
        let wrapped = text(reply(&id, Ok("yes\n".into()), true));
        let expected = r#"{"error":null,"id":7,"result":{"reply":"yes\n","reply-format":"plain"}}"#;
        assert_eq!(wrapped, expected);
    }
}
