//! What the options that several programs share say about themselves.

use super::{About, Complete, about};

/// The heading of what matters most where there is little.
pub(crate) const OPTIONS: &str = "Options";
/// The heading of what makes a daemon.
pub(crate) const DAEMON: &str = "Daemon options";
/// The heading of the log.
pub(crate) const LOGGING: &str = "Logging options";
/// The heading of TLS.
pub(crate) const TLS: &str = "TLS options";
/// The heading of recordings.
pub(crate) const RECORDING: &str = "Replay options";
/// The heading of what belongs nowhere else.
pub(crate) const OTHER: &str = "Other options";

pub(crate) const DETACH: About = about(DAEMON, "", "go to the background once all is ready");
pub(crate) const NO_CHDIR: About = about(DAEMON, "", "stay in the current directory when detached");
pub(crate) const PIDFILE: About =
    about(DAEMON, "FILE", "write the process number (default: @RUN@/@PROGRAM@.pid)")
        .complete(Complete::File);
pub(crate) const OVERWRITE_PIDFILE: About =
    about(DAEMON, "", "even if another process holds that file");
pub(crate) const MONITOR: About = about(DAEMON, "", "start again after a crash");
pub(crate) const USER: About = about(DAEMON, "USER[:GROUP]", "run as this user");
pub(crate) const NO_SELF_CONFINEMENT: About = about(DAEMON, "", "accepted, and without effect");

pub(crate) const VERBOSE: About =
    about(LOGGING, "SPEC", "set levels: MODULE:DESTINATION:LEVEL, in any order; alone: everything");
pub(crate) const LOG_FILE: About =
    about(LOGGING, "FILE", "log to a file (default: @LOGS@/@PROGRAM@.log)")
        .complete(Complete::File);
pub(crate) const SYSLOG_METHOD: About =
    about(LOGGING, "METHOD", "libc, null, unix:FILE or udp:IP:PORT")
        .complete(Complete::Words(&["libc", "null", "unix:", "udp:"]));
pub(crate) const SYSLOG_TARGET: About =
    about(LOGGING, "HOST:PORT", "send syslog messages there too");

pub(crate) const PRIVATE_KEY: About =
    about(TLS, "FILE", "the private key").complete(Complete::File);
pub(crate) const CERTIFICATE: About =
    about(TLS, "FILE", "the certificate of the private key").complete(Complete::File);
pub(crate) const CA_CERT: About =
    about(TLS, "FILE", "certificate of the authority that vouches for peers, or \"none\"")
        .complete(Complete::File);
pub(crate) const BOOTSTRAP_CA_CERT: About =
    about(TLS, "FILE", "as --ca-cert; fetched from the first peer if missing")
        .complete(Complete::File);
pub(crate) const SSL_PROTOCOLS: About =
    about(TLS, "LIST", "TLS versions to allow, such as TLSv1.2-TLSv1.3");
pub(crate) const SSL_CIPHERS: About = about(TLS, "LIST", "ciphers for TLS 1.2");
pub(crate) const SSL_CIPHERSUITES: About = about(TLS, "LIST", "ciphers for TLS 1.3");
pub(crate) const SSL_SERVER_NAME: About = about(TLS, "NAME", "server name to ask for");

pub(crate) const RECORD: About =
    about(RECORDING, "DIR", "write down in DIR all that comes in (default: @RUN@)")
        .complete(Complete::File);
pub(crate) const REPLAY: About =
    about(RECORDING, "DIR", "run from what was written down, without connections")
        .complete(Complete::File);

pub(crate) const HELP: About = about(OTHER, "", "show this text");
pub(crate) const VERSION: About = about(OTHER, "", "show versions");
pub(crate) const OPTION: About = about(OTHER, "", "list all options, for scripts");
