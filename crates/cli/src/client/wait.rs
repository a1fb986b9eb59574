//! `wait`: until a database is added, connected or removed, across as many connections as it
//! takes.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_host::vlog::Level;
use weir_json::{Value, array, object};
use weir_upstream::backoff::{Attempt, Backoff, MS_MAX};

use super::Client;
use super::address::is_passive;
use super::remote::{Attempts, take_server};
use super::restore::check_results;
use super::session::{Lost, Refusal, Session, transaction};
use crate::program::{Failure, Outcome};

/// Runs the command `wait`.
pub(super) fn wait(client: &Client, args: &[String]) -> Outcome {
    let (server, args) = take_server(client, args, 2);
    let [.., database, state] = &args[..] else {
        return Err(Failure::new("invalid syntax for 'wait' (use --help for help)"));
    };
    let condition = wait_operation(database, state)?;
    let mut attempts = Attempts::new(&server);
    let mut backoff = Backoff::default();
    let log = |text: &str| client.log.log("reconnect", Level::Info, text);
    loop {
        let (remote, session) = attempts.next(client);
        let is_passive = is_passive(&remote);
        if let Some(mut session) = session {
            let begun = Instant::now();
            session.probe(true);
            match until(&mut session, condition.clone()) {
                Ok(checked) => return checked.map(|()| ExitCode::SUCCESS),
                Err(Refusal::Error(error)) => {
                    return Err(Failure::new(format!("{server}: transaction failed ({error})")));
                }
                Err(Refusal::Lost(Lost::Closed)) => {
                    log(&format!("{remote}: connection closed by peer"));
                }
                Err(Refusal::Lost(lost)) => {
                    log(&format!("{remote}: connection dropped ({lost})"));
                }
            }
            if is_passive || begun.elapsed() >= Duration::from_micros(backoff.us()) {
                backoff = Backoff::default();
            }
            if is_passive {
                continue;
            }
        }
        if attempts.is_free() {
            continue;
        }
        let attempt = if is_passive { Attempt::Listen } else { Attempt::Connect };
        if let Some(text) = backoff.lengthen(MS_MAX, attempt) {
            log(&format!("{remote}: {text}"));
        }
        sleep(Duration::from_micros(backoff.us()));
    }
}

/// A wait without a time limit for what `_Server` must say.
fn wait_operation(database: &str, state: &str) -> Result<Value, Failure> {
    let (columns, rows): (Vec<Value>, Vec<Value>) = match state {
        "added" => (vec![], vec![object::<0>([])]),
        "connected" => (vec!["connected".into()], vec![object([("connected", true.into())])]),
        "removed" => (vec![], vec![]),
        _ => return Err(Failure::new(format!("{state}: unknown state"))),
    };
    Ok(object([
        ("op", "wait".into()),
        ("table", "Database".into()),
        ("where", array([array(["name", "==", database])])),
        ("columns", columns.into()),
        ("until", "==".into()),
        ("rows", rows.into()),
    ]))
}

fn until(session: &mut Session, condition: Value) -> Result<Result<(), Failure>, Refusal> {
    match session.call("set_db_change_aware", Value::Array(vec![true.into()])) {
        Err(Refusal::Lost(lost)) => return Err(lost.into()),
        // An old server has no `_Server` either, and says so to the next request.
        Ok(_) | Err(Refusal::Error(_)) => {}
    }
    let mut params = vec![];
    transaction("_Server", vec![condition]).write(&mut params);
    session.call_text("transact", &params, check_results)
}
