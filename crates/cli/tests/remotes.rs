//! Connection methods of the running server: TLS with OpenSSL's programs and with our own stream,
//! connections that the server makes, sockets that it inherits.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    PATIENCE, Running, Scratch, WEIR, err, eventually, is_complaint, listens, out, reference,
};
use weir_net::{Address, BlockingStream, Tls, TlsOptions};
use weir_testkit::pki::{LEAF, Pki, Shape};

const LIST: &[u8] = br#"{"id":1,"method":"list_dbs","params":[]}"#;

/// What every server of these tests has.
const COMMON: [&str; 5] =
    ["net.db", "--remote=punix:s.sock", "--unixctl=ctl", "-vconsole:off", "--log-file=log"];

struct Server {
    _running: Running,
    scratch: Scratch,
}

/// A server with these arguments beside the usual ones.
fn serve(args: &[&str], stdin: Option<OwnedFd>) -> Server {
    let scratch = Scratch::new();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/network.ovsschema");
    let created = scratch.run(WEIR, &["tool", "create", "net.db", schema.to_str().expect("UTF-8")]);
    assert!(created.status.success(), "{}", err(&created));
    let mut command = scratch.command(scratch.link("ovsdb-server"));
    command.args(COMMON).args(args);
    if let Some(stdin) = stdin {
        command.stdin(Stdio::from(stdin));
    }
    let running = Running::start(&mut command);
    eventually("the server listens", || listens(&scratch.path("ctl")));
    Server { _running: running, scratch }
}

impl Server {
    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path("log")).unwrap_or_default()
    }

    /// The port of a remote that leaves it to the kernel.
    fn port(&self) -> u16 {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(": listening on port ")).expect(&log);
        line.rsplit(' ').next().and_then(|port| port.parse().ok()).expect(line)
    }

    fn complaints(&self) -> Vec<String> {
        self.log().lines().filter(|line| is_complaint(line)).map(str::to_owned).collect()
    }
}

/// A server that speaks TLS, as `server` of `pki`.
fn serve_tls(pki: &Pki, more: &[&str]) -> Server {
    let tls = pki.arguments("server");
    let mut args = vec!["--remote=pssl:0:127.0.0.1"];
    args.extend(tls.iter().map(String::as_str));
    args.extend_from_slice(more);
    serve(&args, None)
}

fn connect(pki: &Pki, name: &str, port: u16) -> std::io::Result<BlockingStream> {
    let mut tls = Tls::new(&pki.options(name, "ca"));
    let address = Address::Ssl { host: "127.0.0.1".into(), port };
    let connector = tls.connector()?;
    let mut stream = BlockingStream::connect(&address, Some(&connector), Some(PATIENCE))?;
    stream.set_timeout(Some(PATIENCE));
    Ok(stream)
}

/// Sends a request and reads until the answer contains `text`.
fn ask(stream: &mut (impl Read + Write), request: &[u8], text: &str) -> String {
    stream.write_all(request).expect("a server that listens");
    stream.flush().expect("a server that listens");
    let mut answer = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        let end = answer.len().saturating_sub(1000);
        if String::from_utf8_lossy(&answer[end..]).contains(text) {
            return String::from_utf8_lossy(&answer).into_owned();
        }
        match stream.read(&mut buffer).expect("an answer") {
            0 => panic!("the end, after {} bytes", answer.len()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Nothing but the end comes, whatever was sent before.
fn is_closed(stream: &mut impl Read) -> bool {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    !String::from_utf8_lossy(&rest).contains("result")
}

macro_rules! pki {
    ($name:expr) => {
        match Pki::usual($name) {
            Some(pki) => pki,
            None => {
                println!("skipped: openssl is not installed");
                return;
            }
        }
    };
}

#[test]
fn openssl_clients_are_served() {
    let pki = pki!("openssl");
    let server = serve_tls(&pki, &[]);
    let port = server.port();
    let s_client = |more: &[&str]| {
        let (key, certificate, ca) =
            (pki.key("client"), pki.certificate("client"), pki.certificate("ca"));
        let target = format!("127.0.0.1:{port}");
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-connect", &target, "-verify_return_error"]);
        command.args(["-key", &key, "-cert", &certificate, "-CAfile", &ca]).args(more);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // It may be gone already.
        let _ = stdin.write_all(LIST);
        let mut answer = [0; 2];
        let answered = child.stdout.take().expect("a pipe").read_exact(&mut answer).is_ok();
        drop(stdin);
        let _ = child.kill();
        let _ = child.wait();
        answered && &answer == b"{\""
    };
    for good in [
        &["-tls1_2"][..],
        &["-tls1_3"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
        &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    ] {
        assert!(s_client(good), "{good:?}: {}", server.log());
    }
    assert_eq!(server.complaints(), Vec::<String>::new());
    for bad in [&["-tls1_1"][..], &["-tls1_2", "-cipher", "AES128-SHA"]] {
        assert!(!s_client(bad), "{bad:?}");
    }
    let Some(client) = reference("ovsdb-client") else { return };
    let args = pki.arguments("client");
    let target = format!("ssl:127.0.0.1:{port}");
    let listed = server.scratch.run(client, &["list-dbs", &target, &args[0], &args[1], &args[2]]);
    assert_eq!(out(&listed), "Network\n_Server\n", "{}", err(&listed));
}

#[test]
fn protocols_and_ciphers_are_the_configured_ones() {
    let pki = pki!("protocols");
    let more = ["--ssl-protocols=TLSv1.3", "--ssl-ciphers=HIGH:!aNULL:@SECLEVEL=2"];
    let server = serve_tls(&pki, &more);
    let mut old =
        Tls::new(&TlsOptions { protocols: Some("TLSv1.2".into()), ..pki.options("client", "ca") });
    let address = Address::Ssl { host: "127.0.0.1".into(), port: server.port() };
    let connector = old.connector().unwrap();
    assert!(BlockingStream::connect(&address, Some(&connector), Some(PATIENCE)).is_err());
    let mut new = connect(&pki, "client", server.port()).unwrap();
    ask(&mut new, LIST, "_Server");
}

#[test]
fn messages_may_be_huge_or_come_byte_by_byte() {
    let pki = pki!("sizes");
    let server = serve_tls(&pki, &[]);
    let mut client = connect(&pki, "client", server.port()).unwrap();
    for byte in LIST {
        client.write_all(&[*byte]).unwrap();
        client.flush().unwrap();
    }
    ask(&mut client, b"", "_Server");
    // Both directions at once: the answer is as long as the question.
    let text = "x".repeat(20 << 20);
    let echo = format!(r#"{{"id":2,"method":"echo","params":["{text}","END"]}}"#);
    let answer = ask(&mut client, echo.as_bytes(), r#""END"]"#);
    assert!(answer.len() > text.len());
    ask(&mut client, LIST, "_Server");
    assert_eq!(server.complaints(), Vec::<String>::new());
}

#[test]
fn nonsense_and_strangers_are_let_go_and_others_are_served() {
    let pki = pki!("strangers");
    pki.self_signed("stranger", "stranger", Shape { extensions: LEAF, ..Shape::default() });
    let server = serve_tls(&pki, &[]);
    let port = server.port();
    // Who never says anything is no reason to wait for the others.
    let _silent: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(LIST).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(is_closed(&mut plain));
    let mut cut = TcpStream::connect(("127.0.0.1", port)).unwrap();
    cut.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    drop(cut);
    if let Ok(mut stranger) = connect(&pki, "stranger", port) {
        let _ = stranger.write_all(LIST);
        assert!(is_closed(&mut stranger));
    }
    // One that goes in the middle of a message.
    let mut broken = connect(&pki, "client", port).unwrap();
    let mut half = br#"{"method":"echo","params":[""#.to_vec();
    half.resize(100_000, b'x');
    broken.write_all(&half).unwrap();
    drop(broken);
    let mut client = connect(&pki, "client", port).unwrap();
    ask(&mut client, LIST, "_Server");
}

#[test]
fn certificates_are_renewed_without_cutting_sessions() {
    let pki = pki!("renew");
    let server = serve_tls(&pki, &[]);
    let mut old = connect(&pki, "client", server.port()).unwrap();
    ask(&mut old, LIST, "_Server");
    // Another authority, and with it all certificates.
    pki.authority("ca");
    let shape = Shape { extensions: LEAF, ..Shape::default() };
    pki.signed("server", "ca", "server", shape);
    pki.signed("client2", "ca", "client2", shape);
    let mut new = connect(&pki, "client2", server.port()).unwrap();
    ask(&mut new, LIST, "_Server");
    ask(&mut old, LIST, "_Server");
    let mut late = connect(&pki, "client", server.port());
    let refused = late.as_mut().map(|stream| stream.write_all(LIST).is_err() || is_closed(stream));
    assert!(refused.unwrap_or(true), "its authority is not believed any more");
}

#[test]
fn missing_files_are_an_error_and_not_the_end() {
    let server =
        serve(&["--remote=pssl:0:127.0.0.1", "-p", "no-key", "-c", "no-cert", "-C", "no-ca"], None);
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(is_closed(&mut client));
    let said = server.complaints().join("\n");
    for text in [
        "stream_ssl|ERR|SSL_use_certificate_file: error:80000002:system library::No such file",
        "stream_ssl|ERR|SSL_use_PrivateKey_file: error:80000002:system library::No such file",
        "stream_ssl|ERR|failed to load client certificates from no-ca: error:80000002",
        "stream_ssl|ERR|Private key must be configured to use SSL/TLS",
        "stream_ssl|ERR|CA certificate must be configured to use SSL/TLS",
    ] {
        assert!(said.contains(text), "no {text} in {said}");
    }
    let mut local = UnixStream::connect(server.scratch.path("s.sock")).unwrap();
    ask(&mut local, LIST, "_Server");
}

#[test]
fn the_server_connects_to_managers() {
    let manager = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", manager.local_addr().unwrap());
    let server = serve(&[&format!("--remote={target}")], None);
    for _ in 0..2 {
        let (mut connection, _) = manager.accept().unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(&mut connection, LIST, "_Server");
    }
    eventually("the second connection is logged", || {
        server.log().matches(&format!("reconnect|INFO|{target}: connected")).count() == 2
    });
    let log = server.log();
    for text in ["connecting...", "connection closed by peer"] {
        assert!(log.contains(&format!("reconnect|INFO|{target}: {text}")), "{log}");
    }
}

#[test]
fn the_server_connects_to_managers_over_tls_and_unix_sockets() {
    let pki = pki!("managers");
    let scratch = Scratch::new();
    let path = scratch.path(&"d".repeat(120));
    std::fs::create_dir(&path).unwrap();
    let path = path.join("manager.sock");
    let local = {
        // The long path is only bound from inside its folder.
        let short = scratch.path("m.sock");
        let listener = UnixListener::bind(&short).unwrap();
        std::fs::rename(&short, &path).unwrap();
        listener
    };
    let any = Address::parse("pssl:0:127.0.0.1", Path::new("/")).unwrap();
    let listener = weir_net::Listener::open(&any, "pssl:0:127.0.0.1", None)
        .unwrap_or_else(|e| panic!("{}", e.text));
    let tls = pki.arguments("server");
    let remotes = [
        format!("--remote=ssl:127.0.0.1:{}", listener.port().unwrap()),
        format!("--remote=unix:{}", path.display()),
    ];
    let args: Vec<&str> = tls.iter().chain(&remotes).map(String::as_str).collect();
    let _server = serve(&args, None);
    let (mut connection, _) = local.accept().unwrap();
    ask(&mut connection, LIST, "_Server");
    let mut accepted = None;
    eventually("the server connects", || {
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    let mut tls = Tls::new(&pki.options("client", "ca"));
    let stream = accepted.unwrap().stream.accept_tls(&tls.acceptor().unwrap()).unwrap();
    let mut manager = BlockingStream::finish(stream, Some(PATIENCE)).unwrap();
    manager.set_timeout(Some(PATIENCE));
    ask(&mut manager, LIST, "_Server");
}

#[test]
fn an_inherited_socket_is_served_and_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("inherited.sock");
    let listener = UnixListener::bind(&path).unwrap();
    {
        let server = serve(&["--remote=pfd:0"], Some(listener.into()));
        let mut client = UnixStream::connect(&path).unwrap();
        ask(&mut client, LIST, "_Server");
        assert_eq!(server.complaints(), Vec::<String>::new());
        let Some(appctl) = reference("ovs-appctl") else { return };
        let ctl = server.scratch.text("ctl");
        let listed = server.scratch.run(&appctl, &["-t", &ctl, "ovsdb-server/list-remotes"]);
        assert_eq!(out(&listed), "pfd:0\npunix:s.sock\n");
        let refused =
            server.scratch.run(&appctl, &["-t", &ctl, "ovsdb-server/add-remote", "pfd:1"]);
        assert!(err(&refused).contains("pfd: remotes can only be specified on the command line"));
        let done = server.scratch.run(&appctl, &["-t", &ctl, "exit"]);
        assert!(done.status.success());
    }
    assert!(path.exists(), "somebody else made it");
}

#[test]
fn what_is_wrong_with_an_inherited_descriptor_is_in_the_log() {
    // Standard input of the server is a connection that is no listener.
    let (connection, _peer) = UnixStream::pair().unwrap();
    let remotes = ["--remote=pfd:0", "--remote=pfd:x", "--remote=pfd:1", "--remote=pfd:987654"];
    let server = serve(&remotes, Some(connection.into()));
    for (name, text) in [
        ("pfd:0", "not a listening socket"),
        ("pfd:x", "bad file descriptor"),
        ("pfd:1", "not a socket (Socket operation on non-socket)"),
        ("pfd:987654", "not a socket (Bad file descriptor)"),
    ] {
        let line = format!("|stream_fd|ERR|{name}: {text}");
        eventually(&line, || server.log().lines().any(|l| l.ends_with(&line)));
    }
}

#[test]
fn ipv6_of_both_families() {
    let Ok(_) = TcpListener::bind("[::1]:0") else {
        println!("skipped: no IPv6 here");
        return;
    };
    let server = serve(&["--remote=ptcp:0:[::]"], None);
    for host in ["127.0.0.1", "::1"] {
        let mut client = TcpStream::connect((host, server.port())).unwrap();
        ask(&mut client, LIST, "_Server");
    }
}

#[test]
fn lines_about_connections_are_the_reference_s() {
    let Some(program) = reference("ovsdb-server") else { return };
    let remotes = ["--remote=tcp:127.0.0.1:1", "--remote=unix:/nonexistent/x", "--remote=ptcp:bad"];
    let ours = serve(&remotes, None);
    let scratch = Scratch::new();
    std::fs::copy(ours.scratch.path("net.db"), scratch.path("net.db")).unwrap();
    let mut command = scratch.command(program);
    let _theirs = Running::start(command.args(COMMON).args(remotes));
    let lines = |log: &Path, remote: &str| {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let mark = format!("reconnect|INFO|{remote}: ");
        let of_it = text.lines().filter_map(|line| line.split_once(&mark).map(|(_, rest)| rest));
        of_it.map(str::to_owned).take(5).collect::<Vec<_>>()
    };
    for remote in ["tcp:127.0.0.1:1", "unix:/nonexistent/x", "ptcp:bad"] {
        let mut both = (Vec::new(), Vec::new());
        eventually("both have tried twice", || {
            let (ours, theirs) = (ours.scratch.path("log"), scratch.path("log"));
            both = (lines(&ours, remote), lines(&theirs, remote));
            both.0.len() == 5 && both.1.len() == 5
        });
        assert_eq!(both.0, both.1, "{remote}");
    }
}

#[test]
fn openssl_s_server_is_a_manager_too() {
    let pki = pki!("s_server");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (key, certificate, ca) =
        (pki.key("server"), pki.certificate("server"), pki.certificate("ca"));
    let mut command = Command::new("openssl");
    command.args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}"), "-Verify", "3"]);
    command.args(["-key", &key, "-cert", &certificate, "-CAfile", &ca]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl starts");
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let tls = pki.arguments("client");
    let mut args: Vec<&str> = tls.iter().map(String::as_str).collect();
    let remote = format!("--remote=ssl:127.0.0.1:{port}");
    args.push(&remote);
    let server = serve(&args, None);
    eventually("the server is connected", || server.log().contains(": connected"));
    stdin.write_all(LIST).unwrap();
    stdin.write_all(b"\n").unwrap();
    let mut answer = Vec::new();
    BufReader::new(stdout).read_until(b'}', &mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("_Server"));
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_source_may_have_a_name_and_its_messages_are_traced() {
    let source = serve(&["--remote=ptcp:0:127.0.0.1"], None);
    let name = format!("tcp:localhost:{}", source.port());
    let backup = serve(&[&format!("--sync-from={name}"), "-vjsonrpc:file:dbg"], None);
    let asked = format!("{name}: send request, method=\"monitor");
    let answered = format!("{name}: received reply, result=");
    eventually("the backup has asked for all rows and got them", || {
        let log = backup.log();
        log.split_once(&asked).is_some_and(|(_, behind)| behind.contains(&answered))
    });
}

/// Who connects asks for the name that it was told to ask for. With TLS 1.3 a client learns with its
/// first read that it was refused.
#[test]
fn both_sides_of_a_refusal_say_why() {
    let Some(pki) = Pki::usual("refusal") else { return };
    pki.authority("foreign");
    pki.signed("other", "foreign", "other", Shape::default());
    let side = |name: &str| {
        let (key, certificate) = (pki.key(name), pki.certificate(name));
        ["-p", &key, "-c", &certificate, "-C", &pki.certificate("ca")].map(str::to_owned)
    };
    let words = |side: &[String]| side.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let args =
        format!("--remote=pssl:0:127.0.0.1 -vstream_ssl:file:dbg {}", words(&side("server")));
    let asked = serve(&args.split(' ').collect::<Vec<_>>(), None);
    let address = format!("ssl:127.0.0.1:{}", asked.port());
    let list = |name: &str, more: &[&str]| {
        let mut client = asked.scratch.command(asked.scratch.link("ovsdb-client"));
        client.args(["list-dbs", &address]).args(side(name)).args(more);
        client.output().expect("the client")
    };
    let refused = err(&list("other", &[]));
    let alert = "stream_ssl|WARN|SSL_read: error:0A000418:SSL routines::tlsv1 alert unknown ca\n";
    assert!(refused.contains(alert), "{refused}");
    let reason = "stream_ssl|WARN|SSL_accept: error:0A000086:SSL routines::certificate verify \
                  failed (invalid peer certificate: UnknownIssuer)";
    eventually("the server says why", || asked.log().contains(reason));
    let named = |name: &str| format!("stream_ssl|DBG|connection indicated server name {name}\n");
    let known = list("client", &["--ssl-server-name=nb.example"]);
    assert!(known.status.success(), "{}", err(&known));
    eventually("the name is logged", || asked.log().contains(&named("nb.example")));
    // A server that connects is a client of TLS.
    let args = format!("--remote={address} {}", words(&side("other")));
    let asking = serve(&args.split(' ').collect::<Vec<_>>(), None);
    eventually("the server that connects says why", || asking.log().contains(alert));
    let sni = "--ssl-server-name=sb.example";
    let args = format!("--remote={address} {sni} {}", words(&side("client")));
    let _asking = serve(&args.split(' ').collect::<Vec<_>>(), None);
    eventually("the other server is named", || asked.log().contains(&named("sb.example")));
}

#[test]
fn a_source_may_speak_tls() {
    let pki = pki!("source");
    let source = serve_tls(&pki, &[]);
    let name = format!("ssl:127.0.0.1:{}", source.port());
    let from = format!("--sync-from={name}");
    let tls = pki.arguments("client");
    let mut args: Vec<&str> = tls.iter().map(String::as_str).collect();
    args.extend([from.as_str(), "-vjsonrpc:file:dbg"]);
    let backup = serve(&args, None);
    eventually("the backup has all rows", || {
        let replies = backup.log().matches(&format!("{name}: received reply, result=")).count();
        replies >= 3
    });
    assert!(backup.log().contains(&format!("reconnect|INFO|{name}: connected")));
    assert_eq!(backup.complaints(), Vec::<String>::new());
}

#[test]
fn a_source_that_never_shakes_hands_holds_up_nobody_and_is_given_up() {
    let pki = pki!("silent-source");
    let source = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("ssl:{}", source.local_addr().unwrap());
    let from = format!("--sync-from={name}");
    let tls = pki.arguments("client");
    let mut args: Vec<&str> = tls.iter().map(String::as_str).collect();
    args.push(&from);
    let backup = serve(&args, None);
    for _ in 0..2 {
        let (mut connection, _) = source.accept().unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut hello = [0; 5];
        connection.read_exact(&mut hello).unwrap();
        assert_eq!(hello[0], 22, "a record of the handshake");
        // While it waits for an answer, clients are served.
        let mut client = UnixStream::connect(backup.scratch.path("s.sock")).unwrap();
        for _ in 0..100 {
            ask(&mut client, LIST, "_Server");
        }
        // When its time is over, the connection is closed.
        let mut rest = Vec::new();
        connection.read_to_end(&mut rest).unwrap();
    }
    eventually("it is given up twice", || {
        backup.log().matches(&format!("{name}: connection attempt timed out")).count() >= 2
    });
}
