//! Listening, connecting and moving bytes over real sockets.

use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_net::{Accepted, Address, Listener, Peer, Progress, Stream, connect_unix};

/// A fresh directory below the system's temporary one.
fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("weir-net-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn listen(target: &str) -> Listener {
    let address = Address::parse(target, Path::new("/nonexistent")).unwrap();
    Listener::open(&address, target, None).unwrap_or_else(|e| panic!("{target}: {}", e.text))
}

/// Tries again until there is something, within a generous limit.
fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < limit, "nothing happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn accept(listener: &Listener) -> Accepted {
    eventually(|| listener.accept().unwrap())
}

fn read(stream: &mut Stream) -> Vec<u8> {
    eventually(|| {
        let mut buffer = Vec::with_capacity(100);
        match stream.read_spare(&mut buffer, &mut []) {
            Ok(_) => Some(buffer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    })
}

fn carries_bytes(listener: &Listener, target: &str) {
    let address = Address::parse(target, Path::new("/nonexistent")).unwrap();
    let mut client = Stream::connect(&address, None).unwrap();
    let mut server = accept(listener).stream;
    assert_eq!(client.finish_connect().unwrap(), Progress::Done);
    let sent = client.write_vectored(&[IoSlice::new(b"[1"), IoSlice::new(b",2]")]).unwrap();
    assert_eq!((sent, read(&mut server)), (5, b"[1,2]".to_vec()));
    assert_eq!(server.write_vectored(&[IoSlice::new(b"{}")]).unwrap(), 2);
    assert_eq!(read(&mut client), b"{}");
    drop(client);
    assert_eq!(read(&mut server), b"", "the end of the stream is an empty read");
}

#[test]
fn a_port_is_opened_on_the_address_that_a_name_has() {
    // For us it is a name, which the system's resolver knows without asking anybody.
    let name = "127.1";
    let target = format!("ptcp:0:{name}");
    assert!(Address::parse(&target, Path::new("/")).unwrap().needs_lookup());
    let listener = listen(&target);
    carries_bytes(&listener, &format!("tcp:127.0.0.1:{}", listener.port().unwrap()));
}

#[test]
fn a_name_that_nobody_knows_is_told_as_the_reference_tells_it() {
    let target = "ptcp:0:no..name";
    let address = Address::parse(target, Path::new("/")).unwrap();
    let error = Listener::open(&address, target, None).unwrap_err();
    assert_eq!(error.text, "0:no..name: bad IP address \"no..name\"");
    assert_eq!(error.error.raw_os_error(), Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()));
}

#[test]
fn unix_sockets_carry_bytes_and_their_file_goes_with_them() {
    let directory = directory("unix");
    let path = directory.join("db.sock");
    // What a server that was killed leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = listen(&format!("punix:{}", path.display()));
    assert_eq!(listener.path(), Some(path.as_path()));
    assert!(listener.accept().unwrap().is_none());
    carries_bytes(&listener, &format!("unix:{}", path.display()));
    drop(listener);
    assert!(!path.exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn socket_paths_longer_than_sun_path_work() {
    let directory = directory("long");
    let deep = directory.join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    let path = deep.join("db.sock");
    let listener = listen(&format!("punix:{}", path.display()));
    assert!(path.exists());
    carries_bytes(&listener, &format!("unix:{}", path.display()));
    drop(connect_unix(&path).expect("a program that waits gets there too"));
    drop(listener);
    assert!(!path.exists());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_socket_file_that_another_server_took_over_is_left_alone() {
    let directory = directory("taken");
    let path = directory.join("db.sock");
    let first = listen(&format!("punix:{}", path.display()));
    let second = listen(&format!("punix:{}", path.display()));
    drop(first);
    carries_bytes(&second, &format!("unix:{}", path.display()));
    drop(second);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn tcp_with_a_port_of_the_kernels_choice() {
    let listener = listen("ptcp:0:127.0.0.1");
    let port = listener.port().unwrap();
    assert_ne!(port, 0);
    carries_bytes(&listener, &format!("tcp:127.0.0.1:{port}"));
}

#[test]
fn peers_have_the_names_of_the_reference() {
    assert_eq!(Peer::Unix.name(7), "unix#7");
    assert_eq!(Peer::Tcp("192.0.2.1:4711".parse().unwrap()).name(7), "tcp:192.0.2.1:4711");
    assert_eq!(Peer::Tcp("[::1]:4711".parse().unwrap()).name(7), "tcp:[::1]:4711");
}

#[test]
fn failures_have_the_log_lines_of_the_reference() {
    let address = Address::PassiveUnix("/nonexistent/x".into());
    let error = Listener::open(&address, "punix:/nonexistent/x", None).unwrap_err();
    assert_eq!(error.text, "/nonexistent/x: binding failed: No such file or directory");
    let taken = listen("ptcp:0:127.0.0.1");
    let target = format!("ptcp:{}:127.0.0.1", taken.port().unwrap());
    let address = Address::parse(&target, Path::new("/")).unwrap();
    let error = Listener::open(&address, &target, None).unwrap_err();
    let expected = format!("{}: bind: Address already in use", &target["ptcp:".len()..]);
    assert_eq!((error.module, error.text), ("socket_util", expected));
}

#[test]
fn what_is_wrong_with_an_inherited_descriptor_is_told() {
    let refuses = |fd: i32, expected: &str| {
        let target = format!("pfd:{fd}");
        let address = Address::parse(&target, Path::new("/")).unwrap();
        let error = Listener::open(&address, &target, None).unwrap_err();
        assert_eq!((error.module, error.text), ("stream_fd", format!("{target}: {expected}")));
    };
    let file = fs::File::open("/dev/null").unwrap();
    refuses(file.as_raw_fd(), "not a socket (Socket operation on non-socket)");
    // Beyond what the system has for a process.
    refuses(i32::MAX, "not a socket (Bad file descriptor)");
    let datagrams = UnixDatagram::unbound().unwrap();
    refuses(datagrams.as_raw_fd(), "not a stream socket (type 2)");
    let (connected, _peer) = UnixStream::pair().unwrap();
    refuses(connected.as_raw_fd(), "not a listening socket");
}

#[test]
fn a_file_that_is_no_socket_is_not_removed() {
    let directory = directory("no-socket");
    let path = directory.join("conf.db");
    fs::write(&path, "precious").unwrap();
    let target = format!("punix:{}", path.display());
    let address = Address::parse(&target, Path::new("/nonexistent")).unwrap();
    assert!(Listener::open(&address, &target, None).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_dir_all(directory).unwrap();
}
