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
    log.open_file(&path);
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
    log.open_file(&path);
    take(&path);
    log.log("util", Level::Info, "into the unlinked file");
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
fn the_system_log_gets_datagrams_with_priority_date_and_program() {
    let (log, path) = log("syslog");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    log.set_syslog_method(&format!("unix:{}", path.display())).unwrap();
    log.set("syslog:info").unwrap();
    log.set("FACILITY:local0").unwrap();
    log.log("fatal_signal", Level::Warn, "going");
    let mut datagram = [0; 200];
    let count = socket.recv(&mut datagram).unwrap();
    let text = String::from_utf8_lossy(&datagram[..count]);
    assert!(text.starts_with("<132>"), "{text}");
    assert!(text.ends_with(" ovsdb-server: ovs|00001|fatal_signal|WARN|going"), "{text}");
    fs::remove_file(&path).unwrap();
    log.log("fatal_signal", Level::Warn, "a log that is gone harms nobody");
    assert_eq!(log.set_syslog_method("foo"), Err("unsupported syslog method 'foo'".to_owned()));
}
