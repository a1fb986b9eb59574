//! The dialogue of a backup, line by line, and what ends it.

use weir_data::UuidSource;

use super::*;
use crate::backoff;
use crate::follower::Wanted;
use crate::news::Rows;
use crate::remotes::Remotes;
use crate::session::{Input, Options};

const SCHEMA: &str = r#"{"name":"D","version":"1.0.0","tables":{
    "A":{"columns":{"x":{"type":"integer"}}},"B":{"columns":{"y":{"type":"string"}}}}}"#;

const ROW: &str = "6e4d5c9e-32ba-4e6f-9b49-b7e1a0a6a1a1";

fn backup(excluded: &[&str]) -> Follower {
    let backup = Backup {
        own_id: Uuid::from_u128(7),
        excluded: excluded.iter().map(|&table| table.to_owned()).collect(),
        schema: Arc::new(Schema::parse_bytes(SCHEMA.as_bytes()).unwrap()),
    };
    let wanted = Wanted {
        database: "D".into(),
        remotes: Remotes::one("tcp:h:1"),
        leader_only: false,
        options: Options { probe_ms: 60_000, max_backoff_ms: backoff::MS_MAX },
        model: Model::Backup(Arc::new(backup)),
    };
    Follower::new(wanted, 0)
}

fn handle(backup: &mut Follower, now_us: u64, input: Input<'_>) -> Vec<Output> {
    let mut out = Vec::new();
    backup.handle(now_us, input, &mut UuidSource::new([1, 2, 3, 4]), &mut out);
    out
}

fn give(backup: &mut Follower, input: Input<'_>) -> Vec<Output> {
    handle(backup, 1_000_000, input)
}

/// Connects; the replies are given one after the other to the requests, which are returned.
fn talk(backup: &mut Follower, replies: &[&str]) -> (Vec<String>, Vec<Output>) {
    let mut rest = give(backup, Input::Tick);
    rest.extend(give(backup, Input::Up));
    let mut requests = Vec::new();
    for reply in replies {
        let at = rest.iter().position(|output| matches!(output, Output::Send(_)));
        let Output::Send(request) = rest.remove(at.expect("a request")) else { continue };
        let request = Value::parse(&request).unwrap();
        let id = request.get("id").and_then(Value::as_i64).unwrap();
        let (method, params) = (request.get("method").unwrap(), request.get("params").unwrap());
        requests.push(format!("{} {params}", method.as_str().unwrap()));
        let message = format!(r#"{{"id":{id},"result":{reply},"error":null}}"#);
        rest.extend(give(backup, Input::Message(message.as_bytes())));
    }
    (requests, rest)
}

/// The rows that the last output has.
fn news(outputs: &mut Vec<Output>) -> Option<Rows> {
    match outputs.pop_if(|output| matches!(output, Output::News(_))) {
        Some(Output::News(news)) => Some(news.rows),
        _ => None,
    }
}

fn log(outputs: &[Output]) -> Vec<&str> {
    fn text(output: &Output) -> Option<&str> {
        match output {
            Output::Log { text, .. } => Some(text),
            _ => None,
        }
    }
    outputs.iter().filter_map(text).filter(|text| !text.starts_with("tcp:")).collect()
}

const OTHER_ID: &str = r#""00000000-0000-0000-0000-000000000008""#;

#[test]
fn the_dialogue_of_a_backup() {
    let mut backup = backup(&["B"]);
    let rows = format!(r#"{{"A":{{"{ROW}":{{"new":{{"x":5,"_version":["uuid","{ROW}"]}}}}}}}}"#);
    let (requests, mut rest) = talk(&mut backup, &[OTHER_ID, r#"["C","D"]"#, SCHEMA, &rows]);
    let expected = [
        "get_server_id []",
        "list_dbs []",
        r#"get_schema ["D"]"#,
        r#"monitor ["D","D",{"A":[{}]}]"#,
    ];
    assert_eq!(requests, expected);
    let Some(Rows::All(all)) = news(&mut rest) else { panic!("{rest:?}") };
    let message = format!(r#"{{"id":4,"result":{rows},"error":null}}"#);
    let images = all.images(message.into_bytes()).unwrap();
    assert_eq!(images.len(), 1);
    assert_eq!(images[0].values.as_ref().map(Vec::len), Some(1));
    assert_eq!(backup.status(), Status::Following);
    let update = format!(
        r#"{{"id":null,"method":"update","params":["D",{{"A":{{"{ROW}":{{"old":{{"x":5}}}}}}}}]}}"#
    );
    let mut outputs = give(&mut backup, Input::Message(update.as_bytes()));
    let Some(Rows::Images(images)) = news(&mut outputs) else { panic!("{outputs:?}") };
    assert_eq!(images[0].values, None);
}

#[test]
fn nobody_follows_himself() {
    let mut backup = backup(&[]);
    let own = r#""00000000-0000-0000-0000-000000000007""#;
    let (_, rest) = talk(&mut backup, &[own]);
    let expected =
        ["unexpected ovsdb error: Server ID check failed: D: Self replicating is not allowed"];
    assert_eq!(log(&rest), expected);
    assert_eq!(rest.last(), Some(&Output::Failed));
    assert_eq!(backup.next_wakeup_us(), None);
}

#[test]
fn what_stays_wrong_ends_it() {
    for (replies, expected) in [
        (&["7"][..], "get_server_id failed: D: Server ID is not valid UUID"),
        (&[OTHER_ID, "{}"], "list_dbs failed: D: list_dbs response is not array"),
        (&[OTHER_ID, r#"["E"]"#], "list_dbs failed: D: database name is not in the list"),
        (&[OTHER_ID, r#"["D"]"#, SCHEMA, r#"{"C":{}}"#], "unknown table: unknown table C"),
        (&[OTHER_ID, r#"["D"]"#, r#"{"name":"E","tables":{}}"#], "D: unexpected schema E."),
    ] {
        let mut backup = backup(&[]);
        let (_, rest) = talk(&mut backup, replies);
        let said = log(&rest).pop().unwrap_or_default().to_owned();
        assert!(said.ends_with(expected), "{said}");
        assert_eq!((backup.status(), rest.last()), (Status::Failed, Some(&Output::Failed)));
    }
}

#[test]
fn another_schema_is_checked_for_what_it_has() {
    let less =
        r#"{"name":"D","version":"0.9.0","tables":{"A":{"columns":{"x":{"type":"integer"}}}}}"#;
    let (requests, rest) = talk(&mut backup(&[]), &[OTHER_ID, r#"["D"]"#, less, "{}"]);
    assert_eq!(requests[3], r#"monitor ["D","D",{"A":[{}]}]"#);
    assert_eq!(
        log(&rest)[..2],
        [
            "D: Schema version mismatch, checking if D can still be replicated or not.",
            "D can be replicated.",
        ]
    );
    let more =
        r#"{"name":"D","version":"2.0.0","tables":{"C":{"columns":{"x":{"type":"integer"}}}}}"#;
    let (_, rest) = talk(&mut backup(&[]), &[OTHER_ID, r#"["D"]"#, more]);
    let said = log(&rest);
    assert!(said.ends_with(&["D cannot be replicated.", "Nothing to replicate."]), "{said:?}");
    assert_eq!(rest.last(), Some(&Output::Failed));
}

#[test]
fn a_lost_connection_begins_the_dialogue_again() {
    let mut backup = backup(&[]);
    talk(&mut backup, &[OTHER_ID, r#"["D"]"#, SCHEMA, "{}"]);
    give(&mut backup, Input::Down(None));
    // As the reference: the rows are there, so it goes on to say so.
    assert_eq!(backup.status(), Status::Following);
    let at = backup.next_wakeup_us().unwrap();
    let mut out = handle(&mut backup, at, Input::Tick);
    assert!(out.contains(&Output::Connect { target: "tcp:h:1".into() }), "{out:?}");
    out.extend(handle(&mut backup, at, Input::Up));
    assert_eq!(backup.status(), Status::Connecting);
    assert!(matches!(out.last(), Some(Output::Send(_))), "{out:?}");
}

#[test]
fn probes_are_answered_and_nonsense_starts_again() {
    let mut backup = backup(&[]);
    talk(&mut backup, &[OTHER_ID]);
    let echo = br#"{"id":"echo","method":"echo","params":[]}"#;
    let outputs = give(&mut backup, Input::Message(echo));
    let reply = br#"{"id":"echo","result":[],"error":null}"#.to_vec();
    assert_eq!(outputs, [Output::Send(reply)]);
    let outputs = give(&mut backup, Input::Message(br#"{"id":7}"#));
    assert!(outputs.contains(&Output::Close), "{outputs:?}");
    assert_ne!(backup.status(), Status::Failed);
}
