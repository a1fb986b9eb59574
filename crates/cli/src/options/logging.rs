//! The logging options, common to all programs.

use weir_host::vlog::Vlog;

use crate::dirs::Dirs;
use crate::program::Failure;

/// An option about logging, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogId {
    /// `-v`, `--verbose`
    Verbose,
    /// `--log-file`
    File,
    /// `--syslog-method`
    SyslogMethod,
    /// `--syslog-target`
    SyslogTarget,
}

impl LogId {
    /// The option with its value, which is there whenever the table says so.
    pub(crate) fn with(self, value: Option<String>) -> LogOption {
        match self {
            Self::Verbose => LogOption::Verbose(value),
            Self::File => LogOption::File(value),
            Self::SyslogMethod => LogOption::SyslogMethod(value.unwrap_or_default()),
            Self::SyslogTarget => LogOption::SyslogTarget(value.unwrap_or_default()),
        }
    }
}

/// One option about logging; they act in the order in which they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogOption {
    /// `-v`, `--verbose`: `None` is everything at `dbg`.
    Verbose(Option<String>),
    /// `--log-file`: `None` is the default file.
    File(Option<String>),
    /// `--syslog-method`
    SyslogMethod(String),
    /// `--syslog-target`
    SyslogTarget(String),
}

/// The log of a program as its command line wants it.
pub(crate) fn open_log(program: &str, options: &[LogOption], dirs: &Dirs) -> Result<Vlog, Failure> {
    let log = Vlog::new(program);
    // The first one counts; without any, what the environment says.
    let mut method = options.iter().find_map(|option| match option {
        LogOption::SyslogMethod(method) => Some(method.clone()),
        _ => None,
    });
    method = method.or_else(|| std::env::var("OVS_SYSLOG_METHOD").ok().filter(|m| !m.is_empty()));
    if let Some(method) = method {
        log.set_syslog_method(&method).map_err(Failure::new)?;
    }
    for option in options {
        match option {
            LogOption::Verbose(spec) => {
                let spec = spec.as_deref().unwrap_or_default();
                log.set(spec)
                    .map_err(|error| Failure::new(format!("processing \"{spec}\": {error}")))?;
            }
            LogOption::File(name) => {
                let default = format!("{program}.log");
                // The failure is logged, to standard error as well, and that says it all.
                log.open_file(&dirs.log.join(name.as_ref().unwrap_or(&default)))
                    .map_err(|_| Failure::silent(1))?;
            }
            LogOption::SyslogMethod(_) => {}
            LogOption::SyslogTarget(address) => log.set_syslog_target(address),
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_quoted() {
        let options = [LogOption::Verbose(Some("xyz".to_owned()))];
        let failure = open_log("ovsdb-server", &options, &Dirs::from_env()).err();
        assert_eq!(
            failure.map(|failure| failure.text).as_deref(),
            Some("processing \"xyz\": no destination, level, or module \"xyz\"")
        );
    }
}
