//! Scenarios of the log as a whole.

use std::fs;
use std::path::PathBuf;

use super::{Level, Vlog};

/// A quiet console and a file with a pattern that does not change from run to run.
fn log(name: &str) -> (Vlog, PathBuf) {
    let path = std::env::temp_dir().join(format!("weir-vlog-{}-{name}.log", std::process::id()));
    let _ = fs::remove_file(&path);
    let log = Vlog::new("ovsdb-server");
    log.set("console:off").unwrap();
    log.set("syslog:off").unwrap();
    log.set("PATTERN:file:%05N|%c%T|%p|%m").unwrap();
    (log, path)
}

/// The file's text, and the file is gone.
fn take(path: &PathBuf) -> String {
    let text = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    text
}

#[test]
fn lines_are_numbered_and_filtered_by_module_and_level() {
    let (log, path) = log("levels");
    log.open_file(&path).unwrap();
    log.set("jsonrpc:file:dbg").unwrap();
    log.set("reconnect:off").unwrap();
    log.log("jsonrpc", Level::Dbg, "shown");
    log.log("unixctl", Level::Dbg, "hidden");
    log.log("reconnect", Level::Err, "hidden");
    log.set_subprogram("monitor");
    log.log("daemon_unix", Level::Info, "shown");
    assert!(log.enabled("jsonrpc", Level::Dbg) && !log.enabled("unixctl", Level::Dbg));
    let expected = format!(
        "00001|vlog|INFO|opened log file {}\n00002|jsonrpc|DBG|shown\n\
         00003|daemon_unix(monitor)|INFO|shown\n",
        path.display()
    );
    assert_eq!(take(&path), expected);
}

#[test]
fn a_rotated_file_is_reopened_and_a_closed_one_gets_nothing() {
    let (log, path) = log("rotate");
    assert_eq!(log.reopen(), Err("Logging to file not configured".to_owned()));
    log.open_file(&path).unwrap();
    take(&path);
    // Its last line goes to the old file.
    log.reopen().unwrap();
    log.reopen().unwrap();
    log.close_file();
    log.log("util", Level::Info, "nowhere");
    assert_eq!(take(&path), format!("00003|vlog|INFO|opened log file {}\n", path.display()));
}

#[test]
fn replies_have_the_columns_of_the_reference() {
    let (log, _) = log("list");
    let list = log.list();
    assert!(list.starts_with(
        "                 console    syslog    file\n                 -------    ------    ------\n\
         backtrace          OFF        OFF       INFO\n"
    ));
    assert!(list.contains("\ndpif_lookup_autovalidator   OFF        OFF       INFO\n"));
    let patterns = log.list_patterns();
    assert!(patterns.starts_with(
        "         prefix                            format\n         ------                            ------\n\
         SYSLOG   <%B> %D{%h %e %T} %E %A:          ovs|%05N|%c%T|%p|%m\n\
         CONSOLE  none                              %D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m\n"
    ));
}

#[test]
fn a_socket_of_the_users_choice_gets_datagrams_with_a_priority() {
    let (log, path) = log("syslog");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    log.set_syslog_method(&format!("unix:{}", path.display())).unwrap();
    log.set("syslog:info").unwrap();
    log.set("FACILITY:local0").unwrap();
    log.log("fatal_signal", Level::Warn, "going");
    let mut datagram = [0; 200];
    let count = socket.recv(&mut datagram).unwrap();
    let text = String::from_utf8_lossy(&datagram[..count]);
    assert_eq!(text, "<132>ovs|00001|fatal_signal|WARN|going");
    fs::remove_file(&path).unwrap();
    log.log("fatal_signal", Level::Warn, "a log that is gone harms nobody");
    assert_eq!(log.set_syslog_method("foo"), Err("unsupported syslog method 'foo'".to_owned()));
}

#[test]
fn a_target_elsewhere_gets_rfc_5424() {
    let (log, _) = log("target");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    log.set_syslog_method("null").unwrap();
    log.set("syslog:info").unwrap();
    log.set_syslog_target(&socket.local_addr().unwrap().to_string());
    log.log("fatal_signal", Level::Warn, "going");
    let mut lines = Vec::new();
    for _ in 0..2 {
        let mut datagram = [0; 300];
        let count = socket.recv(&mut datagram).unwrap();
        lines.push(String::from_utf8_lossy(&datagram[..count]).into_owned());
    }
    assert!(lines[0].starts_with("<132>1 2"), "{lines:?}");
    assert!(lines[0].ends_with("--syslog-target flag is deprecated, use --syslog-method instead"));
    let pid = std::process::id();
    let end = format!(" ovsdb-server {pid} fatal_signal - \u{feff}going");
    assert!(lines[1].ends_with(&end), "{lines:?}");
}

#[test]
fn provoked_lines_are_limited_unless_an_admin_says_otherwise() {
    let (log, path) = log("limit");
    log.open_file(&path).unwrap();
    let provoke = |count| {
        (0..count).for_each(|_| log.log_limited("place", "jsonrpc", Level::Warn, "bad"));
    };
    provoke(20);
    log.set_rate_limit(Some("jsonrpc"), false).unwrap();
    assert!(
        log.list()
            .contains("jsonrpc            OFF        OFF       INFO    (rate limiting disabled)")
    );
    provoke(20);
    assert_eq!(log.set_rate_limit(Some("nope"), true), Err("unknown module".to_owned()));
    assert_eq!(take(&path).matches("|bad\n").count(), 25);
}
