//! `ovsdb-server`: from the command line to a running server.

mod help;
pub(crate) mod options;
mod user;

use std::path::PathBuf;
use std::process::ExitCode;

use weir_host::{Options, Unixctl};
use weir_server::effect::TlsSettings;
use weir_server::{Config, FileForms};

use crate::dirs::{Dirs, absolute};
use crate::memory;
use crate::options::logging::{LogOption, open_log};
use crate::options::tls::TlsOption;
use crate::program::{Failure, Outcome, say, version_lines};
pub(crate) use help::manual;
use options::{Invocation, Mistake, ServerOptions};

/// Name in messages, pid files and sockets.
const PROGRAM: &str = "ovsdb-server";

/// Runs `ovsdb-server`, called as `typed`.
pub(crate) fn main(typed: &str, args: Vec<String>) -> Outcome {
    let dirs = Dirs::from_env();
    let given = match options::parse(args) {
        Ok(Invocation::Serve(given)) => *given,
        Ok(Invocation::Help) => return print(&manual().help(&dirs)),
        Ok(Invocation::Version) => return print(&version_lines(PROGRAM)),
        Err(Mistake::Usage(text)) => return Err(Failure::usage(typed, &text)),
        Err(Mistake::Fatal(failure)) => return Err(failure),
    };
    let log = open_log(PROGRAM, &given.process.log, &dirs)?;
    if let Some(name) = &given.process.user {
        let logs = given.process.log.iter().any(|option| matches!(option, LogOption::File(_)));
        user::become_user(name, logs.then(|| log_file(&given, &dirs)).flatten().as_deref())?;
    }
    Ok(weir_host::run(host_options(given, &dirs)?, &log))
}

/// Does what `--user` asks of another program than the server.
pub(crate) fn become_user(spec: &str) -> Result<(), Failure> {
    user::become_user(spec, None)
}

fn print(text: &str) -> Outcome {
    say(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The last log file that the command line names.
fn log_file(given: &ServerOptions, dirs: &Dirs) -> Option<PathBuf> {
    let default = format!("{PROGRAM}.log");
    given.process.log.iter().rev().find_map(|option| match option {
        LogOption::File(name) => Some(dirs.log.join(name.as_ref().unwrap_or(&default))),
        _ => None,
    })
}

/// What the host wants to know of the command line, paths made absolute.
fn host_options(given: ServerOptions, dirs: &Dirs) -> Result<Options, Failure> {
    let databases = databases(&given, dirs)?;
    Ok(Options {
        server: Config {
            server_name: PROGRAM,
            tls: tls_settings(&given)?,
            remotes: given.remotes,
            databases,
            sync_from: given.sync_from,
            sync_exclude: given.sync_exclude,
            sync_active: given.active,
            config_file: given
                .config_file
                .map(|path| dirs.db.join(path).to_string_lossy().into_owned()),
            files: FileForms {
                whole_columns: given.no_column_diff,
                whole_conversions: given.no_data_conversion,
                no_history: given.no_history,
            },
            kept_bytes_max: bytes_in(KEPT_MEMORY),
            ..Config::default()
        },
        rundir: dirs.run.clone(),
        unixctl: match given.unixctl.as_deref() {
            None => Unixctl::Default,
            Some("none") => Unixctl::None,
            Some(path) => Unixctl::Path(dirs.run.join(path)),
        },
        daemon: given.process.daemon(PROGRAM, dirs),
        // It is open already: it is opened in turn with the options about levels.
        log_file: None,
        recording: dirs.recording(&given.process.recording),
        run_command: given.run,
        input_bytes_max: bytes_in(MESSAGE_MEMORY),
        trim_memory: memory::trim,
    })
}

/// Bytes that messages on their way may take together, if the operator says so.
const MESSAGE_MEMORY: &str = "WEIR_MESSAGE_MEMORY";

/// Bytes that waiting transactions, results, monitors and locks of all clients may take, likewise.
const KEPT_MEMORY: &str = "WEIR_KEPT_MEMORY";

fn bytes_in(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok().filter(|bytes| *bytes > 0)
}

/// The options of TLS; a later one counts. A daemon leaves the directory that names of files start
/// from.
fn tls_settings(given: &ServerOptions) -> Result<TlsSettings, Failure> {
    let mut tls = TlsSettings::default();
    let leaves = given.process.leaves_directory();
    let file = |value: &String| {
        if !leaves || value == "none" || value.starts_with("db:") {
            return Ok::<_, Failure>(Some(value.clone()));
        }
        let path = absolute(value).map_err(|error| Failure::io("the current directory", &error))?;
        Ok(Some(path.to_string_lossy().into_owned()))
    };
    for (option, value) in &given.process.tls {
        match option {
            TlsOption::PrivateKey => tls.private_key = file(value)?,
            TlsOption::Certificate => tls.certificate = file(value)?,
            TlsOption::CaCert | TlsOption::BootstrapCaCert => {
                tls.ca_cert = file(value)?;
                tls.bootstrap = *option == TlsOption::BootstrapCaCert;
            }
            TlsOption::PeerCaCert => tls.peer_ca_cert = file(value)?,
            TlsOption::Protocols => tls.protocols = Some(value.clone()),
            TlsOption::Ciphers => tls.ciphers = Some(value.clone()),
            TlsOption::Ciphersuites => tls.ciphersuites = Some(value.clone()),
            TlsOption::ServerName => tls.server_name = Some(value.clone()),
        }
    }
    Ok(tls)
}

/// The databases to open. Messages name a file as the user did, as long as that name stays good:
/// a daemon leaves the directory that relative names start from.
fn databases(given: &ServerOptions, dirs: &Dirs) -> Result<Vec<String>, Failure> {
    if given.databases.is_empty() && !given.no_dbs && given.config_file.is_none() {
        return Ok(vec![dirs.default_database().to_string_lossy().into_owned()]);
    }
    let leaves = given.process.leaves_directory();
    let mut names: Vec<String> = vec![];
    for name in &given.databases {
        let name = match absolute(name) {
            _ if name.starts_with("relay:") => name.clone(),
            Ok(path) if leaves => path.to_string_lossy().into_owned(),
            Err(error) if leaves => return Err(Failure::io("the current directory", &error)),
            _ => name.clone(),
        };
        // The same name twice is the same database once.
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::process::ProcessOptions;

    fn names(databases: &[&str], detach: bool, no_dbs: bool) -> Vec<String> {
        let databases = databases.iter().map(|&name| name.to_owned()).collect();
        let process = ProcessOptions { detach, ..ProcessOptions::default() };
        let given = ServerOptions { databases, process, no_dbs, ..ServerOptions::default() };
        super::databases(&given, &Dirs::from_env()).unwrap_or_default()
    }

    #[test]
    fn names_of_databases_stay_as_given_while_they_are_good() {
        assert_eq!(names(&["a.db", "a.db", "b.db"], false, false), ["a.db", "b.db"]);
        let detached = names(&["a.db", "/b.db"], true, false);
        assert!(detached[0].starts_with('/') && detached[0].ends_with("/a.db"), "{detached:?}");
        assert_eq!(detached[1], "/b.db");
        assert!(names(&[], false, true).is_empty());
        assert!(names(&[], false, false)[0].ends_with("/conf.db"));
    }
}
