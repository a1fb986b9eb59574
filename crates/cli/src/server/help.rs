//! `ovsdb-server --help`.

use crate::dirs::Dirs;

/// The text; scripts look in it for option names.
pub(crate) fn text(dirs: &Dirs) -> String {
    let db = dirs.default_database().display().to_string();
    let pid = dirs.run.join("ovsdb-server.pid").display().to_string();
    let log = dirs.log.join("ovsdb-server.log").display().to_string();
    TEXT.replace("@DB@", &db).replace("@PID@", &pid).replace("@LOG@", &log)
}

const TEXT: &str = "\
ovsdb-server: serves OVSDB databases (Weir)
usage: ovsdb-server [OPTIONS] [DATABASE...]
Each DATABASE is a file that ovsdb-tool has created. Without any,
@DB@ is served.

Where clients connect:
  --remote=REMOTE         listen on REMOTE (may be given several times):
                            punix:FILE        a unix domain socket
                            ptcp:PORT[:IP]    TCP
                            pssl:PORT[:IP]    TLS over TCP
                            db:DB,TABLE,COLUMN  whatever this column says
                          IPv6 addresses are written in brackets; port 0 lets the
                          system choose one
  --unixctl=SOCKET        socket for ovs-appctl, or \"none\"

TLS (each takes a FILE or db:DB,TABLE,COLUMN):
  -p, --private-key=FILE  the server's key
  -c, --certificate=FILE  the server's certificate
  -C, --ca-cert=FILE      certificate of the authority that vouches for clients
  --bootstrap-ca-cert=FILE  the same; fetched from the first peer if missing
  --peer-ca-cert=FILE     authority certificate to show to clients
  --ssl-protocols=LIST    TLS versions to allow, such as TLSv1.2-TLSv1.3
  --ssl-ciphers=LIST      ciphers for TLS 1.2
  --ssl-ciphersuites=LIST  ciphers for TLS 1.3
  --ssl-server-name=NAME  server name for outgoing connections

The process:
  --detach                go to the background once everything is open
  --no-chdir              stay in the current directory when detached
  --pidfile[=FILE]        write the process number (default: @PID@)
  --overwrite-pidfile     even if another process holds that file
  --monitor               start again after a crash
  --user=USER[:GROUP]     run as this user
  --no-self-confinement   accepted, and without effect here
  --run=COMMAND           run COMMAND in a shell, and end when it ends

Logging:
  -v, --verbose           log everything
  -vSPEC, --verbose=SPEC  set levels: MODULE:DESTINATION:LEVEL, in any order
  --log-file[=FILE]       log to a file (default: @LOG@)
  --syslog-method=METHOD  libc, null, unix:FILE or udp:IP:PORT
  --syslog-target=HOST:PORT  send syslog messages there too

Databases:
  --no-dbs                start without any database
  --disable-file-column-diff  write whole columns to database files
  --disable-file-no-data-conversion  write all rows when a schema is converted

  --config-file=FILE      take databases and remotes from this JSON file, again
                          at each ovsdb-server/reload (goes without DATABASE,
                          --remote and the options that follow)

Backup of another server:
  --sync-from=SERVER      keep the databases like those of SERVER, read-only
  --sync-exclude-tables=DB:TABLE,...  leave these tables alone
  --active                be ready for it, but begin as an active server

Not supported yet:
  --record[=DIR], --replay[=DIR], relay:SCHEMA:REMOTE

Other:
  -h, --help              show this text
  -V, --version           show versions
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_scripts_look_for() {
        let text = text(&Dirs::from_env());
        for word in ["disable-file-column-diff", "punix:FILE", "--pidfile[=FILE]"] {
            assert!(text.contains(word), "{word}");
        }
        assert!(!text.contains('@'));
    }
}
