//! Clustered files spliced from texts: their bytes, and what the reference's tools say of them.

mod reference;
mod sample;

use std::sync::Arc;

use reference::{Folder, is_installed, output};
use sample::{Random, schema_text, transaction};
use weir_data::{Row, Schema, Store, TableId, Uuid};
use weir_json::validate;
use weir_log::clustered::{
    Data, DataText, EntryText, Header, Kind, Record, Servers, Snapshot, SnapshotHeader, State,
    stream_snapshot_data, write_snapshot,
};
use weir_log::record::{Magic, Reader};
use weir_log::standalone::{Form, write_transaction_json};

const S1: &str = "11111111-1111-4111-8111-111111111111";
const S2: &str = "22222222-2222-4222-8222-222222222222";
const CID: &str = "33333333-3333-4333-8333-333333333333";
const EID: &str = "55555555-5555-4555-8555-555555555555";

fn id(text: &str) -> Uuid {
    Uuid::parse(text).unwrap()
}

fn servers() -> Servers {
    Servers::from([(id(S1), "unix:a".to_owned()), (id(S2), "tcp:10.0.0.1:6644".to_owned())])
}

fn snapshot_header(servers: &Servers) -> SnapshotHeader<'_> {
    SnapshotHeader {
        server_id: id(S1),
        local_address: "unix:a",
        name: "D",
        cluster_id: id(CID),
        servers,
        index: 7,
        term: 3,
        eid: id(EID),
        election_timer: Some(2000),
    }
}

/// The bodies of all records, without their newlines.
fn bodies(file: &[u8]) -> Vec<String> {
    let mut reader = Reader::new();
    reader.feed(file);
    let mut bodies = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let body = record.body.strip_suffix(b"\n").unwrap();
        bodies.push(String::from_utf8(body.to_vec()).unwrap());
    }
    assert_eq!(reader.magic(), Some(Magic::Clustered));
    reader.finish().unwrap();
    bodies
}

#[test]
fn entries_are_spliced_from_texts() {
    let servers = servers();
    let plain = EntryText {
        comment: None,
        term: 2,
        index: 8,
        servers: None,
        election_timer: None,
        data: None,
        is_marked: false,
    };
    let pair = |schema, transaction| Some((DataText::Pair { schema, transaction }, id(EID)));
    // Longer than what a header has room for without moving.
    let long = format!(r#"{{"_date":1,"_comment":"{}"}}"#, "x".repeat(5000));
    for (entry, expected) in [
        (plain, r#"{"term":2,"index":8}"#.to_owned()),
        (
            EntryText { election_timer: Some(1500), comment: Some("a\"b"), ..plain },
            r#"{"comment":"a\"b","term":2,"index":8,"election_timer":1500}"#.to_owned(),
        ),
        (
            EntryText { servers: Some(&servers), term: u64::MAX - 2, ..plain },
            format!(
                r#"{{"term":-3,"index":8,"servers":{{"{S1}":"unix:a","{S2}":"tcp:10.0.0.1:6644"}}}}"#
            ),
        ),
        (
            EntryText { data: pair(None, Some(br#"{ "_date":1 }"#)), ..plain },
            format!(r#"{{"term":2,"index":8,"eid":"{EID}","data":[null,{{ "_date":1 }}]}}"#),
        ),
        (
            EntryText { data: pair(Some(br#"{"name":"D"}"#), None), ..plain },
            format!(r#"{{"term":2,"index":8,"eid":"{EID}","data":[{{"name":"D"}},null]}}"#),
        ),
        (
            EntryText { data: pair(Some(b"{}"), Some(long.as_bytes())), ..plain },
            format!(r#"{{"term":2,"index":8,"eid":"{EID}","data":[{{}},{long}]}}"#),
        ),
        (
            EntryText { data: Some((DataText::Whole(b"[null,{}]"), id(EID))), ..plain },
            format!(r#"{{"term":2,"index":8,"eid":"{EID}","data":[null,{{}}]}}"#),
        ),
    ] {
        let mut file = vec![];
        Record { comment: None, term: 1, kind: Kind::Term }.write(&mut file);
        let range = entry.write(&mut file);
        let text = String::from_utf8(file[range].to_vec()).unwrap();
        assert_eq!(text.is_empty(), entry.data.is_none());
        assert!(expected.ends_with(&format!("{text}}}")) || entry.data.is_none(), "{text}");
        assert_eq!(bodies(&file), [r#"{"term":1}"#.to_owned(), expected]);
    }
}

#[test]
fn the_other_records_and_headers_are_what_they_were() {
    let mut file = vec![];
    let data = validate(br#"[{"name":"D"},{}]"#).unwrap();
    let snapshot = Snapshot { index: 7, term: 3, eid: id(EID), data, election_timer: None };
    let joined = State::Joined { servers: servers(), snapshot: Some(snapshot) };
    let joining = State::Joining { remotes: vec!["unix:b".to_owned(), "unix:c".to_owned()] };
    for (cluster_id, state) in [(Some(id(CID)), joined), (None, joining)] {
        let (name, local_address) = ("D".to_owned(), "unix:a".to_owned());
        Header { server_id: id(S1), local_address, name, cluster_id, state }.write(&mut file);
    }
    for (comment, kind) in [
        (None, Kind::Note("left".to_owned())),
        (Some("why".to_owned()), Kind::CommitIndex(12)),
        (None, Kind::Leader(id(S1))),
        (None, Kind::Vote(id(S2))),
    ] {
        Record { comment: comment.map(Into::into), term: 4, kind }.write(&mut file);
    }
    let start = format!(r#"{{"server_id":"{S1}","local_address":"unix:a","name":"D","#);
    let servers = format!(r#"{{"{S1}":"unix:a","{S2}":"tcp:10.0.0.1:6644"}}"#);
    let expected = [
        format!(
            r#"{start}"cluster_id":"{CID}","prev_servers":{servers},"prev_index":7,"prev_term":3,"prev_eid":"{EID}","prev_data":[{{"name":"D"}},{{}}]}}"#
        ),
        format!(r#"{start}"remote_addresses":["unix:b","unix:c"]}}"#),
        r#"{"note":"left"}"#.to_owned(),
        r#"{"comment":"why","commit_index":12}"#.to_owned(),
        format!(r#"{{"term":4,"leader":"{S1}"}}"#),
        format!(r#"{{"term":4,"vote":"{S2}"}}"#),
    ];
    assert_eq!(bodies(&file), expected);
}

/// A store of random rows, none of its columns ephemeral.
fn store(random: &mut Random, transactions: usize) -> Store {
    let schema = schema_text(random).replace(r#","ephemeral":true"#, "");
    let schema = Schema::parse_bytes(schema.as_bytes()).unwrap();
    let mut store = Store::new(Arc::new(schema), 7);
    for _ in 0..transactions {
        let delta = transaction(random, &store);
        store.apply(&delta);
    }
    store
}

#[test]
fn a_snapshot_is_streamed_in_pieces() {
    let mut random = Random::new(1);
    let mut store = store(&mut random, 10);
    let schema = Arc::clone(store.schema());
    for _ in 0..10_000 {
        store.insert(TableId(0), Row::new(random.uuid(), random.uuid(), schema.table(TableId(0))));
    }
    let snapshot = store.snapshot();
    let servers = servers();
    let (mut file, mut longest) = (vec![], 0);
    let mut sink = |piece: &[u8]| {
        longest = longest.max(piece.len());
        file.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    let header = snapshot_header(&servers);
    let record = write_snapshot(&header, &snapshot, 5, Some("why"), &mut sink).unwrap();
    assert!(file.len() > 3 * longest, "{} {longest}", file.len());
    assert_eq!(record.len, file.len() as u64);
    let range = record.data.start as usize..record.data.end as usize;
    let mut data = vec![];
    let mut sink = |piece: &[u8]| {
        data.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    stream_snapshot_data(&snapshot, 5, Some("why"), &mut sink).unwrap();
    assert_eq!(file[range], data);

    let body = &bodies(&file)[0];
    let read = Header::parse(validate(body.as_bytes()).unwrap()).unwrap();
    let State::Joined { servers: read_servers, snapshot: Some(read) } = read.state else {
        panic!("{body}")
    };
    assert_eq!((read.index, read.term, read.eid), (7, 3, id(EID)));
    assert_eq!((read.election_timer, read_servers), (Some(2000), servers));
    let data = Data::parse(read.data).unwrap();
    let schema = Schema::parse(data.schema.unwrap()).unwrap();
    assert_eq!(&schema, &**store.schema());
    assert!(data.transaction.is_some());
}

/// A file as a server writes it in the course of some transactions.
fn file(random: &mut Random, store: &mut Store, id_of_server: &str) -> Vec<u8> {
    let servers = servers();
    let header = SnapshotHeader { server_id: id(id_of_server), ..snapshot_header(&servers) };
    let mut file = vec![];
    let mut sink = |piece: &[u8]| {
        file.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    write_snapshot(&header, &store.snapshot(), 5, None, &mut sink).unwrap();
    Record { comment: None, term: 4, kind: Kind::Vote(id(S1)) }.write(&mut file);
    Record { comment: None, term: 4, kind: Kind::Leader(id(S1)) }.write(&mut file);
    let (comment, term, servers, election_timer) = (None, 4, None, None);
    for index in 8..40 {
        let delta = transaction(random, store);
        store.apply(&delta);
        let mut text = vec![];
        let form = if index % 2 == 0 { Form::Difference } else { Form::Whole };
        let any =
            write_transaction_json(form, &mut text, &delta, store, 1000 + index, Some("\u{e9}"));
        let pair = DataText::Pair { schema: None, transaction: Some(&text) };
        let data = any.then(|| (pair, random.uuid()));
        let index = index as u64;
        EntryText {
            comment,
            term,
            index,
            servers,
            election_timer,
            data,
            is_marked: index.is_multiple_of(2),
        }
        .write(&mut file);
        Record { comment: None, term: 0, kind: Kind::CommitIndex(index) }.write(&mut file);
    }
    file
}

#[test]
fn the_tools_of_the_reference_accept_what_is_written() {
    if !is_installed() {
        return;
    }
    for seed in 0..4 {
        let folder = Folder::new(&format!("spliced{seed}"));
        let mut members = [S1, S2].map(|server| {
            let mut random = Random::new(seed);
            let mut store = store(&mut random, 8);
            (file(&mut random, &mut store, server), store)
        });
        // The other server has not heard of the last commit yet.
        let mut last = vec![];
        Record { comment: None, term: 0, kind: Kind::CommitIndex(39) }.write(&mut last);
        assert!(members[1].0.ends_with(&last));
        let len = members[1].0.len() - last.len();
        members[1].0.truncate(len);
        folder.write("1.db", &members[0].0);
        folder.write("2.db", &members[1].0);
        let tool = |args: &[&str]| output(&folder, "ovsdb-tool", args);
        let silent = (String::new(), String::new());
        assert_eq!(tool(&["check-cluster", "1.db", "2.db"]), silent);
        assert_eq!(tool(&["db-cid", "1.db"]), (format!("{CID}\n"), String::new()));
        assert_eq!(tool(&["db-sid", "2.db"]), (format!("{S2}\n"), String::new()));
        let (log, error) = tool(&["show-log", "-mm", "1.db"]);
        assert_eq!(error, "");
        assert!(log.contains(" server_id: 1111\n") && log.contains(" index: 39\n"), "{log}");
        assert_eq!(tool(&["cluster-to-standalone", "standalone", "1.db"]), silent);
        let loaded = sample::load(&folder.read("standalone")).unwrap();
        assert_eq!(loaded.warning, None);
        assert_eq!(sample::content(&loaded.store), sample::content(&members[0].1), "{seed}");
    }
}
