//! The floor of what is large, in miniature.

use super::*;
use crate::client::{Client, Target};
use crate::floor::Kind;
use crate::floor::tests::{remove, spawn_on};
use crate::large::{Dump, dump_request};
use crate::pulse::{self, Pulse};
use serde_json::json;

/// A file of one record, 100 bytes of body.
fn content() -> Vec<u8> {
    let mut file = Vec::new();
    dbfile::record(&mut file, &mut |out| out.write_all(&[b'x'; 100])).unwrap();
    file
}

fn length(file: &Path) -> usize {
    fs::metadata(file).unwrap().len() as usize
}

#[test]
fn everything_has_the_bytes_and_rows_asked_for() {
    for (bytes, rows) in [(10_000, 1), (10_000, 70), (12_345, 100), (500, 0)] {
        let text = everything(bytes, rows);
        let message: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(message["result"][2]["T"].is_object());
        assert_eq!(memchr::memmem::find_iter(&text, br#":{"initial""#).count(), rows);
        assert!(rows == 0 || text.len() == bytes, "{} of {bytes} bytes", text.len());
    }
}

#[test]
fn a_file_is_read_and_its_hash_checked_at_the_start() {
    let path = std::env::temp_dir().join(format!("weir-bulk-{}", std::process::id()));
    let mut content = [content(), content()].concat();
    fs::write(&path, &content).unwrap();
    assert_eq!(take_in(&path).unwrap(), content.len() as u64);
    *content.last_mut().unwrap() = b'y';
    fs::write(&path, &content).unwrap();
    assert!(take_in(&path).unwrap_err().to_string().contains("not what its hash says"));
    content.pop();
    fs::write(&path, &content).unwrap();
    assert!(take_in(&path).unwrap_err().to_string().contains("ends in a record"));
    fs::remove_file(path).unwrap();
}

#[test]
fn a_long_string_is_written_and_comes_back() {
    let (target, file) = spawn_on("string", Kind::Bulk, &content());
    let before = length(&file);
    let mut client = Client::connect(&target).unwrap();
    for size in [10, 1_000_000] {
        let text = vec![b'a'; size];
        let insert = [br#"{"id":0,"method":"transact","row":""#, &text[..], b"\"}"].concat();
        client.call("floor", &json!([insert.len()])).unwrap();
        let reply = client.exchange(&insert).unwrap();
        assert!(memchr::memmem::find(reply, br#""uuid""#).is_some());
        for _ in 0..2 {
            let select = br#"{"id":0,"method":"transact","params":[{"op":"select"}]}"#;
            let reply = client.exchange(select).unwrap();
            assert!(memchr::memmem::find(reply, &text).is_some());
            assert!(serde_json::from_slice::<serde_json::Value>(reply).is_ok());
        }
    }
    assert!(length(&file) > before + 1_000_010);
    assert!(take_in(&file).is_ok(), "what was written is a database file's record");
    remove(&file);
}

#[test]
fn many_get_everything_while_one_commits_and_the_file_is_written_anew() {
    let (target, file) = spawn_on("everything", Kind::Bulk, &content());
    let wanted = Dump { bytes: 3_000_000, rows: 1_000, ..Dump::default() };
    wanted.configure_floor(&target).unwrap();
    pulse::prepare(&target).unwrap();
    let pulse = Pulse::start(&target).unwrap();
    // All ask before anybody reads.
    let mut others: Vec<_> = (0..20).map(|_| target.connect().unwrap()).collect();
    others.iter_mut().for_each(|stream| stream.write_all(&dump_request()).unwrap());
    let dump = Dump::take(&target).unwrap();
    assert_eq!((dump.bytes, dump.rows), (wanted.bytes, wanted.rows));
    for stream in &mut others {
        let mut reply = vec![0; wanted.bytes];
        stream.read_exact(&mut reply).unwrap();
        assert!(reply.ends_with(b"\"error\":null}"));
    }
    assert!(pulse.stop().unwrap().count() > 0);
    let before = length(&file);
    assert!(before > content().len(), "commits are in the file");
    let control = Target::Unix(file.with_file_name(running::CONTROL));
    Client::connect(&control).unwrap().call("ovsdb-server/compact", &json!(["D"])).unwrap();
    assert_eq!(length(&file), content().len(), "as long as at the start");
    remove(&file);
}
