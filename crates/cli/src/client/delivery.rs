//! `wait-delivered`: until the clients of a server have a transaction, or the time is over.

use std::process::ExitCode;

use weir_json::{Value, array};

use super::Client;
use super::output::{write_all, write_failure};
use super::remote::Target;
use super::session::Refusal;
use crate::program::{Failure, Outcome};

/// The command's name.
pub(super) const NAME: &str = "wait-delivered";

/// How long a server waits without `--timeout`, in seconds: the longest that it does.
const TIMEOUT_S: u32 = 3600;

/// How much longer than its server the client waits, in seconds: for the answer that says who is
/// late.
const GRACE_S: u32 = 5;

/// After how many seconds the process gives up, where the server is told to before.
pub(super) fn patience_s(timeout: Option<u32>) -> Option<u32> {
    Some(timeout?.saturating_add(GRACE_S))
}

/// Runs the command `wait-delivered`.
pub(super) fn wait_delivered(client: &Client, target: Target) -> Outcome {
    let Target { mut session, server, database, args } = target;
    let state = args.first().map_or("now", String::as_str);
    let timeout_s = client.options.timeout.unwrap_or(TIMEOUT_S).min(TIMEOUT_S);
    let mut options = vec![
        ("level".to_owned(), client.options.level.as_str().into()),
        ("timeout".to_owned(), (i64::from(timeout_s) * 1000).into()),
    ];
    options.extend(client.options.count.map(|count| ("count".to_owned(), count.into())));
    let options = Value::Object(options.into_iter().collect());
    client.begin_daemon()?;
    let params = array([database.as_str().into(), state.into(), options]);
    match session.call("weir_wait_delivered", params) {
        Ok(result) => tell(&result),
        Err(Refusal::Error(error)) if error.as_str() == Some("unknown method") => {
            Err(Failure::new(format!(
                "{server} cannot tell what its clients have: it is not Weir, or an older one"
            )))
        }
        Err(Refusal::Error(error)) => Err(Failure::new(format!("{server}: {error}"))),
        Err(Refusal::Lost(lost)) => Err(Failure::new(format!("{server}: {lost}"))),
    }
}

/// Says who has it, and who has not.
fn tell(result: &Value) -> Outcome {
    let number = |name: &str| result.get(name).and_then(Value::as_i64).unwrap_or_default();
    let mut text = format!("{} of {} clients have it", number("delivered"), number("clients"));
    if number("left") > 0 {
        text.push_str(&format!(", {} have left", number("left")));
    }
    if number("wanted") > number("clients") {
        text.push_str(&format!(", {} are waited for", number("wanted")));
    }
    text.push('\n');
    let missing = result.get("missing").and_then(Value::as_array).unwrap_or_default();
    let is_complete = result.get("complete").and_then(Value::as_bool) == Some(true);
    if !is_complete {
        missing.iter().for_each(|missing| text.push_str(&late(missing)));
    }
    write_all(text.as_bytes()).map_err(write_failure)?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The line of a client that is late.
fn late(missing: &Value) -> String {
    let client = missing.get("client").and_then(Value::as_str).unwrap_or("?");
    let far = match missing.get("level").and_then(Value::as_str) {
        Some("queued") => "queued, and not written".to_owned(),
        Some("written") => "written, and not acknowledged".to_owned(),
        _ => {
            let behind = missing.get("behind").and_then(Value::as_i64).unwrap_or_default();
            format!("behind by {behind}")
        }
    };
    format!("{client}: {far}\n")
}

#[cfg(test)]
mod tests {
    use weir_json::object;

    use super::*;

    #[test]
    fn each_client_that_is_late_has_a_line() {
        let line = |level: &str| {
            let missing = object([
                ("behind", 3.into()),
                ("client", "unix#1".into()),
                ("level", level.into()),
            ]);
            late(&missing)
        };
        assert_eq!(line("none"), "unix#1: behind by 3\n");
        assert_eq!(line("queued"), "unix#1: queued, and not written\n");
        assert_eq!(line("written"), "unix#1: written, and not acknowledged\n");
    }
}
