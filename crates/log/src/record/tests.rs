//! Framing: what is taken, how much is kept of it, and where a header has to move.

use super::*;

fn record(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_record(&mut out, json.as_bytes());
    out
}

#[test]
fn a_record_is_a_header_and_a_line() {
    let expected = "OVSDB JSON 3 5f36b2ea290645ee34d943220a14b54ee5ea5be5\n{}\n";
    assert_eq!(String::from_utf8(record("{}")).unwrap(), expected);
}

#[test]
fn a_header_finds_its_place_before_a_body_of_any_length() {
    for length in [2, 98, 99, 100, 998, 999, 1000, 99_999, 1_000_000] {
        let json = format!("{{{}}}", " ".repeat(length - 2));
        let mut out = b"before".to_vec();
        let unfinished = Unfinished::begin(Magic::Standalone, &mut out);
        out.extend_from_slice(json.as_bytes());
        unfinished.finish(&mut out, false);
        assert!(out == [b"before", &record(&json)[..]].concat(), "length {length}");
    }
}

#[test]
fn an_abandoned_record_leaves_nothing() {
    let mut out = b"before".to_vec();
    let unfinished = Unfinished::begin(Magic::Standalone, &mut out);
    out.extend_from_slice(b"{\"_date\":1}");
    unfinished.abandon(&mut out);
    assert_eq!(out, b"before");
}

#[test]
fn records_come_out_when_their_last_byte_is_in() {
    let records = [record("{}"), record("{\"a\":1}"), record("{\"b\":[]}")];
    let mut reader = Reader::new();
    let mut ends = Vec::new();
    for (at, byte) in records.concat().iter().enumerate() {
        reader.feed(&[*byte]);
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(record.end, at as u64 + 1);
            assert!(record.json().is_ok());
            ends.push(record.end as usize);
        }
    }
    let [a, b, c] = records.map(|record| record.len());
    assert_eq!(ends, [a, a + b, a + b + c]);
    assert_eq!(reader.offset() as usize, a + b + c);
    assert_eq!(reader.magic(), Some(Magic::Standalone));
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn a_length_that_lies_takes_no_memory() {
    let hash = "0".repeat(40);
    let mut reader = Reader::new();
    reader.feed(format!("OVSDB JSON 9999999999999 {hash}\n").as_bytes());
    assert!(matches!(reader.next_record(), Ok(None)));
    let mut fed = 0;
    for _ in 0..100 {
        reader.feed(&[b' '; 100_000]);
        fed += 100_000;
        assert!(matches!(reader.next_record(), Ok(None)));
        assert!(reader.buffer.capacity() <= (2 * fed).max(2 * GROWTH_MIN));
    }
    let left = 9_999_999_999_999 - fed as u64 / 8192 * 8192;
    assert!(matches!(reader.finish(), Err(Error::Truncated { length, .. }) if length == left));
}

#[test]
fn a_large_record_is_let_go_of() {
    let large = record(&format!("{{{}}}", " ".repeat(3 * BUFFER_KEPT)));
    let mut reader = Reader::new();
    for piece in large.chunks(1 << 16) {
        reader.feed(piece);
        let _ = reader.next_record().unwrap();
    }
    assert!(reader.buffer.capacity() > 3 * BUFFER_KEPT);
    reader.feed(&record("{}"));
    assert!(reader.buffer.capacity() < 1000);
    assert!(reader.next_record().unwrap().is_some());
}

#[test]
fn what_follows_a_record_of_another_kind_is_bad() {
    let clustered = String::from_utf8(record("{}")).unwrap().replacen("JSON", "CLUSTER", 1);
    let mut reader = Reader::new();
    reader.feed(clustered.as_bytes());
    assert!(reader.next_record().unwrap().is_some());
    assert_eq!(reader.magic(), Some(Magic::Clustered));
    reader.feed(&record("{}"));
    let error = reader.next_record().unwrap_err();
    let expected = "syntax error: x: parse error at offset 60 in header line \"OVSDB JSON\"";
    assert_eq!(error.about("x").to_string(), expected);
}
