//! `lock`, `steal` and `unlock`: one request, then whatever the server says about locks.

use std::process::ExitCode;

use super::Client;
use super::background::{AdminCommands, Background, Happened};
use super::output::{write_all, write_failure};
use super::remote::Target;
use super::session::strings;
use crate::program::{Failure, Outcome};

const ADMIN_COMMANDS: AdminCommands =
    &[("lock", "LOCK", 1, 1), ("steal", "LOCK", 1, 1), ("unlock", "LOCK", 1, 1)];

/// Runs the command `lock`.
pub(super) fn lock(client: &Client, target: Target) -> Outcome {
    follow(client, "lock", target)
}

/// Runs the command `steal`.
pub(super) fn steal(client: &Client, target: Target) -> Outcome {
    follow(client, "steal", target)
}

/// Runs the command `unlock`.
pub(super) fn unlock(client: &Client, target: Target) -> Outcome {
    follow(client, "unlock", target)
}

fn follow(client: &Client, method: &str, target: Target) -> Outcome {
    let Target { mut session, args, .. } = target;
    let mut background = Background::start(client, ADMIN_COMMANDS, false)?;
    let name = args.first().map(String::as_str).unwrap_or_default();
    session.request_only(method, &strings(&[name]))?;
    loop {
        let line = match background.wait(&mut session)? {
            Happened::Exit => return Ok(ExitCode::SUCCESS),
            Happened::Admin(request) => {
                let name = request.args.first().map(String::as_str).unwrap_or_default();
                session.request_only(&request.name, &strings(&[name]))?;
                background.reply(&request, Ok(String::new()));
                continue;
            }
            Happened::Reply(None) => String::new(),
            Happened::Reply(Some(result)) => format!("{result}\n"),
            Happened::Notification(notification) => {
                let params = weir_json::Value::Array(notification.params);
                format!("{}\n{params}\n", notification.method)
            }
        };
        write_all(line.as_bytes()).map_err(write_failure)?;
        client.process.ready(&client.log).map_err(|failure| Failure::new(failure.text))?;
    }
}
