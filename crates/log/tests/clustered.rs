//! The grammar of clustered files: what is written is read again, and nothing that is read panics.

use std::borrow::Cow;

use proptest::prelude::*;
use weir_data::Uuid;
use weir_json::{Text, validate};
use weir_log::clustered::{Data, Entry, Header, Kind, Record, Servers, Snapshot, State};
use weir_log::record::{Magic, Reader};

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_filter_map("not zero", |bytes| {
        let text = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let dashed = format!(
            "{}-{}-{}-{}-{}",
            &text[..8],
            &text[8..12],
            &text[12..16],
            &text[16..20],
            &text[20..]
        );
        Uuid::parse(&dashed).filter(|uuid| *uuid != Uuid::ZERO)
    })
}

fn address() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z./]{1,20}".prop_map(|path| format!("unix:{path}")),
        (any::<[u8; 4]>(), 1..=u16::MAX)
            .prop_map(|([a, b, c, d], port)| format!("tcp:{a}.{b}.{c}.{d}:{port}")),
        (1..=u16::MAX).prop_map(|port| format!("ssl:[::1]:{port}")),
    ]
}

fn servers() -> impl Strategy<Value = Servers> {
    prop::collection::btree_map(uuid(), address(), 1..5)
}

const DATA: [&str; 4] = [
    r#"[{"name":"D","tables":{}},{"_date":1,"T":{}}]"#,
    r#"[null,{"_comment":"\u00e9\n","_date":2}]"#,
    r#"[{"name":"D","tables":{}},null]"#,
    "[null,null]",
];

fn data() -> impl Strategy<Value = Text<'static>> {
    (0..DATA.len()).prop_map(|at| validate(DATA[at].as_bytes()).expect("JSON"))
}

fn kind() -> impl Strategy<Value = Kind<'static>> {
    let timer = prop::option::of(1..600_000_u64);
    let entry = (1_u64.., prop::option::of(servers()), timer, prop::option::of((data(), uuid())));
    prop_oneof![
        "[a-z ]{1,12}".prop_map(Kind::Note),
        (1_u64..).prop_map(Kind::CommitIndex),
        Just(Kind::Term),
        uuid().prop_map(Kind::Leader),
        uuid().prop_map(Kind::Vote),
        entry.prop_map(|(index, servers, election_timer, data)| {
            Kind::Entry(Entry { index, servers, election_timer, data })
        }),
    ]
}

fn header() -> impl Strategy<Value = Header<'static>> {
    let timer = prop::option::of(1..600_000_u64);
    let snapshot = (1_u64.., any::<u64>(), uuid(), data(), timer).prop_map(
        |(index, term, eid, data, election_timer)| Snapshot {
            index,
            term,
            eid,
            data,
            election_timer,
        },
    );
    let state = prop_oneof![
        prop::collection::vec(address(), 1..4).prop_map(|remotes| State::Joining { remotes }),
        (servers(), prop::option::of(snapshot))
            .prop_map(|(servers, snapshot)| State::Joined { servers, snapshot }),
    ];
    (uuid(), uuid(), "[a-z]{1,9}", state).prop_map(|(server_id, cluster, name, state)| Header {
        server_id,
        local_address: "unix:here".to_owned(),
        name,
        cluster_id: Some(cluster),
        state,
    })
}

/// The JSON of the only record in `file`.
fn record(file: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new();
    reader.feed(file);
    let record = reader.next_record().expect("a good record").expect("a whole record");
    let body = record.body.to_vec();
    assert_eq!(reader.magic(), Some(Magic::Clustered));
    body
}

proptest! {
    #[test]
    fn a_record_that_was_written_is_read_again(
        comment in prop::option::of("[ -~]{0,20}"),
        term in 1_u64..,
        kind in kind(),
    ) {
        let mut file = Vec::new();
        let term = if matches!(kind, Kind::Note(_) | Kind::CommitIndex(_)) { 0 } else { term };
        let written = Record { comment: comment.map(Cow::Owned), term, kind };
        written.write(&mut file);
        let body = record(&file);
        let read = Record::parse(validate(&body).expect("JSON")).expect("a record");
        prop_assert_eq!(&read.comment, &written.comment);
        prop_assert_eq!(read.term, written.term);
        let mut again = Vec::new();
        read.write(&mut again);
        prop_assert_eq!(again, file);
    }

    #[test]
    fn a_header_that_was_written_is_read_again(written in header()) {
        let mut file = Vec::new();
        written.write(&mut file);
        let body = record(&file);
        let read = Header::parse(validate(&body).expect("JSON")).expect("a header");
        prop_assert_eq!(read.server_id, written.server_id);
        prop_assert_eq!(&read.name, &written.name);
        let mut again = Vec::new();
        read.write(&mut again);
        prop_assert_eq!(again, file);
    }

    #[test]
    fn any_change_of_a_record_is_read_or_refused(
        kind in kind(), header in header(), at in any::<usize>(), byte in any::<u8>(),
    ) {
        let mut files = [Vec::new(), Vec::new()];
        Record { comment: None, term: 1, kind }.write(&mut files[0]);
        header.write(&mut files[1]);
        for file in files {
            let mut body = record(&file);
            let at = at % body.len();
            body[at] = byte;
            if let Ok(text) = validate(&body) {
                let _ = Record::parse(text);
                let _ = Header::parse(text);
                let _ = Data::parse(text);
            }
        }
    }
}

#[test]
fn numbers_above_the_signed_ones_are_written_as_negative_ones() {
    let text = validate(br#"{"term":-3}"#).expect("JSON");
    assert_eq!(Record::parse(text).expect("a record").term, u64::MAX - 2);
}

#[test]
fn data_is_a_pair() {
    let parse = |text: &'static str| Data::parse(validate(text.as_bytes()).expect("JSON"));
    assert!(parse("[null]").is_none());
    assert!(parse("[null,null,null]").is_none());
    assert!(parse("{}").is_none());
    let schema_only = parse(r#"[{"name":"D"},null]"#).expect("a pair");
    assert!(schema_only.schema.is_some() && schema_only.transaction.is_none());
}
