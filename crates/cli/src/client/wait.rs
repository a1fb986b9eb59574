//! `wait`: until a database is added, connected or removed, across as many connections as it
//! takes.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use weir_host::vlog::Level;
use weir_json::{Value, array, object};

use super::Client;
use super::remote::{Attempts, take_server};
use super::session::{Lost, Refusal, Session, transaction};
use crate::program::{Failure, Outcome};

/// The first pause between attempts to reach a server; each further one is twice as long.
const BACKOFF: Duration = Duration::from_secs(1);

/// The longest pause.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// `wait`
pub(super) fn wait(client: &Client, args: &[String]) -> Outcome {
    let (server, args) = take_server(client, args, 2);
    let [.., database, state] = &args[..] else {
        return Err(Failure::new("invalid syntax for 'wait' (use --help for help)"));
    };
    let condition = wait_operation(database, state)?;
    let mut attempts = Attempts::new(client, &server);
    let mut backoff = BACKOFF;
    loop {
        if let Some(mut session) = attempts.next(client) {
            backoff = BACKOFF;
            match until(&mut session, condition.clone()) {
                Ok(()) => return Ok(ExitCode::SUCCESS),
                Err(Refusal::Error(error)) => {
                    return Err(Failure::new(format!("{}: transaction failed ({error})", server)));
                }
                Err(Refusal::Lost(lost)) => {
                    let text = format!("{}: connection closed by peer", session.peer());
                    let text = match lost {
                        Lost::Closed => text,
                        lost => format!("{}: connection dropped ({lost})", session.peer()),
                    };
                    client.log.log("reconnect", Level::Info, &text);
                }
            }
        }
        if !attempts.all_tried() {
            continue;
        }
        if backoff > BACKOFF {
            let seconds = backoff.as_secs();
            let text = format!("{server}: waiting {seconds} seconds before reconnect");
            client.log.log("reconnect", Level::Info, &text);
        }
        sleep(backoff);
        backoff = (backoff * 2).min(BACKOFF_MAX);
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

fn until(session: &mut Session, condition: Value) -> Result<(), Refusal> {
    match session.call("set_db_change_aware", Value::Array(vec![true.into()])) {
        Err(Refusal::Lost(lost)) => return Err(lost.into()),
        // An old server has no `_Server` either, and says so to the next request.
        Ok(_) | Err(Refusal::Error(_)) => {}
    }
    session.call("transact", transaction("_Server", vec![condition]))?;
    Ok(())
}
