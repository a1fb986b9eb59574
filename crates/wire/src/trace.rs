//! Messages as lines of a log, in the words of the reference (`-vjsonrpc:dbg`).

use crate::Message;

/// Longest message that is shown whole, in bytes; of a longer one the length is told.
const TRACED_BYTES_MAX: usize = 16 << 20;

/// The line for a message that came.
pub fn received(name: &str, bytes: &[u8]) -> String {
    line(name, "received", bytes)
}

/// The line for a whole message that goes.
pub fn sent(name: &str, bytes: &[u8]) -> String {
    line(name, "send", bytes)
}

/// One message in one line, its keys sorted.
fn line(name: &str, title: &str, bytes: &[u8]) -> String {
    if bytes.len() > TRACED_BYTES_MAX {
        return format!("{name}: {title} message of {} bytes", bytes.len());
    }
    let mut out = format!("{name}: {title} ").into_bytes();
    match weir_json::validate(bytes).map(Message::parse) {
        // The reference calls its own errors replies.
        Ok(Ok(Message::Error { error, id })) if title == "send" => {
            out.extend_from_slice(b"reply, error=");
            error.write(&mut out);
            out.extend_from_slice(b", id=");
            id.write(&mut out);
        }
        Ok(Ok(message)) => describe(message, &mut out),
        // What is wrong with it is told elsewhere.
        _ => out.extend_from_slice(b"malformed message"),
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn describe(message: Message<'_>, out: &mut Vec<u8>) {
    let (kind, method, members) = match message {
        Message::Request { method, params, id } => {
            ("request", Some(method), [Some(("params", params)), Some(("id", id))])
        }
        Message::Notification { method, params } => {
            ("notification", Some(method), [Some(("params", params)), None])
        }
        Message::Reply { result, id } => {
            ("reply", None, [Some(("result", result)), Some(("id", id))])
        }
        Message::Error { error, id } => ("error", None, [Some(("error", error)), Some(("id", id))]),
    };
    out.extend_from_slice(kind.as_bytes());
    if let Some(method) = method {
        out.extend_from_slice(format!(", method=\"{method}\"").as_bytes());
    }
    for (name, value) in members.into_iter().flatten() {
        out.extend_from_slice(format!(", {name}=").as_bytes());
        value.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_in_the_words_of_the_reference() {
        for (message, expected) in [
            (
                r#"{"id":0,"params":["D",{"op":"x","a":1}],"method":"transact"}"#,
                r#"unix#1: received request, method="transact", params=["D",{"a":1,"op":"x"}], id=0"#,
            ),
            (
                r#"{"method":"update3","params":["m"],"id":null}"#,
                r#"unix#1: received notification, method="update3", params=["m"]"#,
            ),
            (r#"{"error":"no","id":"x"}"#, r#"unix#1: received error, error="no", id="x""#),
            (r#"{"foo":1}"#, "unix#1: received malformed message"),
        ] {
            assert_eq!(received("unix#1", message.as_bytes()), expected);
        }
    }
}
