//! Severities and destinations, as vlog names them (ovs-appctl(8), "Logging Commands").

use weir_net::tls::Severity;

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As a threshold: nothing is logged.
    Off,
    /// `emer`.
    Emer,
    /// `err`.
    Err,
    /// `warn`.
    Warn,
    /// `info`.
    Info,
    /// `dbg`.
    Dbg,
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Self::Err,
            Severity::Warning => Self::Warn,
            Severity::Info => Self::Info,
            Severity::Debug => Self::Dbg,
        }
    }
}

impl Level {
    /// The level of that name, in any case.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::Off, Self::Emer, Self::Err, Self::Warn, Self::Info, Self::Dbg];
        all.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    /// What `%p` prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Emer => "EMER",
            Self::Err => "ERR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Dbg => "DBG",
        }
    }

    /// The severity of RFC 5424.
    pub(crate) fn severity(self) -> u8 {
        match self {
            Self::Off | Self::Emer => 1,
            Self::Err => 3,
            Self::Warn => 4,
            // NOTICE, as the reference has it.
            Self::Info => 5,
            Self::Dbg => 7,
        }
    }
}

/// Where log lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The system log.
    Syslog,
    /// Standard error.
    Console,
    /// The log file.
    File,
}

impl Destination {
    /// All, in the order of `vlog/list-pattern`.
    pub(crate) const ALL: [Self; 3] = [Self::Syslog, Self::Console, Self::File];

    /// The destination of that name, in any case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|destination| destination.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Syslog => "SYSLOG",
            Self::Console => "CONSOLE",
            Self::File => "FILE",
        }
    }
}

/// One value for each destination.
#[derive(Clone, Debug)]
pub(crate) struct PerDestination<T> {
    pub(crate) syslog: T,
    pub(crate) console: T,
    pub(crate) file: T,
}

impl<T> PerDestination<T> {
    pub(crate) fn get(&self, destination: Destination) -> &T {
        match destination {
            Destination::Syslog => &self.syslog,
            Destination::Console => &self.console,
            Destination::File => &self.file,
        }
    }

    pub(crate) fn get_mut(&mut self, destination: Destination) -> &mut T {
        match destination {
            Destination::Syslog => &mut self.syslog,
            Destination::Console => &mut self.console,
            Destination::File => &mut self.file,
        }
    }
}
