//! `ovsdb-client` before a server that says whatever it likes: a byte that chooses the command, and
//! what comes from the server. It prints something or says what is wrong.
#![no_main]

use std::io::{IoSlice, Read};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use weir_net::Stream;

/// Options and words of each command; SERVER is put in.
const COMMANDS: [&[&str]; 16] = [
    &["dump", "SERVER", "D"],
    &["-fcsv", "dump", "SERVER", "D", "T"],
    &["-fhtml", "--data=bare", "dump", "SERVER", "D", "T", "m", "s"],
    &["-fjson", "--pretty", "dump", "SERVER", "D"],
    &["-flist", "--data=json", "dump", "SERVER", "D"],
    &["monitor", "SERVER", "D", "ALL"],
    &["--timestamp", "--max-column-width=9", "monitor", "SERVER", "D", "T", "s,m", "!initial,r"],
    &["-fcsv", "monitor-cond", "SERVER", "D", "[true]", "T"],
    &["-flist", "monitor-cond-since", "SERVER", "D", "[[\"s\",\"==\",\"a\"]]", "T"],
    &["backup", "SERVER", "D"],
    &["list-columns", "SERVER", "D"],
    &["--pretty", "get-schema", "SERVER", "D"],
    &["query", "SERVER", "[\"D\",{\"op\":\"select\",\"table\":\"T\",\"where\":[]}]"],
    &["-vjsonrpc:dbg", "lock", "SERVER", "L"],
    &["dump", "SERVER,SERVER", "D"],
    &["list-tables", "SERVER"],
];

/// Says everything to a client, which may have gone: that must be no signal.
fn say(stream: &UnixStream, mut bytes: &[u8]) {
    let Ok(other) = stream.try_clone() else { return };
    let mut other = Stream::Unix(other.into());
    while let Ok(count @ 1..) = other.write_vectored(&[IoSlice::new(bytes)]) {
        bytes = bytes.get(count..).unwrap_or_default();
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// Where this process listens.
static SOCKET: LazyLock<(PathBuf, UnixListener)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("weir-fuzz-client-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    (path, listener)
});

fuzz_target!(|input: &[u8]| {
    let Some((&first, said)) = input.split_first() else { return };
    let (path, listener) = &*SOCKET;
    let server = format!("unix:{}", path.display());
    let words = COMMANDS[usize::from(first) % COMMANDS.len()];
    let connections = if words.iter().any(|word| word.contains(',')) { 2 } else { 1 };
    let mut args = vec!["-vconsole:off".to_owned(), "-vsyslog:off".to_owned()];
    args.extend(words.iter().map(|word| word.replace("SERVER", &server)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..connections {
                let Ok((mut stream, _)) = listener.accept() else { return };
                say(&stream, said);
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        weir_cli::fuzzing::client(args);
        // Whoever is still waited for.
        for _ in 0..connections {
            let _ = UnixStream::connect(path);
        }
    });
    // Those that nobody waited for.
    listener.set_nonblocking(true).expect("a socket");
    while listener.accept().is_ok() {}
    listener.set_nonblocking(false).expect("a socket");
});
