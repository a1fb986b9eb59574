//! What is written is read again, and of a damaged file as much as was good.

mod sample;

use sample::{Random, content, file, load, load_pieces, load_seekable};
use weir_log::record::write_record;
use weir_log::standalone::{Form, Style, write_schema, write_snapshot, write_transaction_as};

#[test]
fn transactions_are_read_back() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let file = file(&mut random, 12);
        let loaded = load(&file.bytes).unwrap();
        assert_eq!(loaded.warning, None, "seed {seed}");
        assert_eq!(content(&loaded.store), content(&file.store), "seed {seed}");
        assert_eq!(loaded.schema, *file.store.schema());
        assert_eq!(loaded.valid_len, file.bytes.len() as u64);
        assert_eq!(loaded.file_len, file.bytes.len() as u64);
        assert_eq!(loaded.records, file.states.len() as u64);
        let snapshot = file.states.get(1).or(file.states.first()).unwrap().0;
        assert_eq!(loaded.snapshot_len, snapshot as u64);
    }
}

#[test]
fn records_may_be_read_while_they_come() {
    for seed in 0..100 {
        let file = file(&mut Random::new(seed), 12);
        let step = 1 + seed as usize * 13;
        let loaded = load_seekable(&file.bytes, step).unwrap();
        assert_eq!(content(&loaded.store), content(&file.store), "seed {seed}");
        assert_eq!(loaded.valid_len, file.bytes.len() as u64);
        assert_eq!(loaded.file_len, file.bytes.len() as u64);
        assert_eq!(loaded.records, file.states.len() as u64);
    }
}

/// A conversion gives it to rows that lack the column, and clients may add to it.
#[test]
fn a_default_that_its_constraint_forbids_is_read_back() {
    const ROW: &str = "6e4d5c9e-32ba-4e6f-9b49-b7e1a0a6a1a1";
    let schema = r#"{"name":"D","tables":{"T":{"columns":{
        "set":{"type":{"key":{"type":"string","enum":["set",["x","y"]]},"max":3}},
        "map":{"type":{"key":{"type":"integer","minInteger":1},"value":"string","max":3}}}}}}"#;
    let file = |changed: &str| {
        let mut bytes = Vec::new();
        for text in [schema, &format!(r#"{{"T":{{"{ROW}":{{}}}}}}"#), changed] {
            write_record(&mut bytes, text.as_bytes());
        }
        load(&bytes).unwrap()
    };
    for (is_diff, set, map) in [
        ("false", r#"["set",["","x"]]"#, r#"["map",[[0,""],[1,"x"]]]"#),
        ("true", r#""x""#, r#"["map",[[1,"x"]]]"#),
        ("true", r#"["set",["","x","y"]]"#, r#"["map",[[0,""],[1,"x"],[2,"y"]]]"#),
    ] {
        let row = format!(r#"{{"set":{set},"map":{map}}}"#);
        let loaded = file(&format!(r#"{{"_is_diff":{is_diff},"T":{{"{ROW}":{row}}}}}"#));
        assert_eq!(loaded.warning, None, "{row}");
        let table = loaded.schema.table_id("T").unwrap();
        let row = loaded.store.table(table).iter().next().unwrap();
        assert!(loaded.schema.table(table).data_columns().all(|(id, _)| row.get(id).len() == 2));
    }
    let other = file(&format!(r#"{{"T":{{"{ROW}":{{"set":["set",["","z"]]}}}}}}"#));
    assert!(other.warning.unwrap().contains("is not one of the allowed values"));
}

/// Whoever wrote the last record had taken out the reference to the row that goes, and could have two others.
#[test]
fn a_reference_to_a_row_that_is_gone_takes_no_room() {
    let schema = r#"{"name":"D","tables":{"T":{"isRoot":true,"columns":{"w":{"type":{
        "key":{"type":"uuid","refTable":"T","refType":"weak"},"min":0,"max":2}}}}}}"#;
    let id = |n: u32| format!("6e4d5c9e-32ba-4e6f-9b49-b7e1a0a6a1a{n}");
    let (one, gone, two, three) = (id(1), id(2), id(3), id(4));
    let rows = format!(
        r#"{{"T":{{"{one}":{{"w":["uuid","{gone}"]}},"{gone}":{{}},"{two}":{{}},"{three}":{{}}}}}}"#
    );
    let others = format!(r#"["set",[["uuid","{two}"],["uuid","{three}"]]]"#);
    let mut bytes = Vec::new();
    for text in [
        schema,
        &rows,
        &format!(r#"{{"_is_diff":true,"T":{{"{gone}":null}}}}"#),
        &format!(r#"{{"_is_diff":true,"T":{{"{one}":{{"w":{others}}}}}}}"#),
    ] {
        write_record(&mut bytes, text.as_bytes());
    }
    let loaded = load(&bytes).unwrap();
    assert_eq!((loaded.warning, loaded.records), (None, 4));
}

#[test]
fn columns_that_are_not_kept_come_back_as_defaults() {
    let mut seen = 0;
    for seed in 0..100 {
        let file = file(&mut Random::new(seed), 6);
        let loaded = load(&file.bytes).unwrap();
        for (table, schema) in loaded.schema.table_ids() {
            for (column, schema) in schema.data_columns().filter(|(_, c)| !c.persistent) {
                for row in loaded.store.table(table).iter() {
                    seen += 1;
                    assert!(row.get(column).is_default(&schema.ty));
                }
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn whole_columns_are_read_back() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut file = file(&mut random, 4);
        let delta = sample::transaction(&mut random, &file.store);
        file.store.apply(&delta);
        let start = file.bytes.len();
        let out = &mut file.bytes;
        let style = Style { form: Form::Whole, is_marked: false };
        write_transaction_as(style, out, &delta, &file.store, 5, None);
        assert!(!String::from_utf8_lossy(&file.bytes[start..]).contains("_is_diff"));
        assert_eq!(content(&load(&file.bytes).unwrap().store), content(&file.store));
    }
}

#[test]
fn snapshots_are_read_back() {
    for seed in 0..100 {
        let file = file(&mut Random::new(seed), 12);
        let mut bytes = Vec::new();
        write_schema(&mut bytes, file.store.schema());
        let mut sink = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok::<(), ()>(())
        };
        write_snapshot(&file.store.snapshot(), 1, Some("small"), &mut sink).unwrap();
        let loaded = load(&bytes).unwrap();
        assert_eq!((loaded.warning, loaded.records), (None, 2));
        assert_eq!(content(&loaded.store), content(&file.store), "seed {seed}");
    }
}

#[test]
fn a_snapshot_stops_when_the_disk_is_full() {
    let file = file(&mut Random::new(1), 12);
    for fails_at in 0..2 {
        let mut calls = 0;
        let result = write_snapshot(&file.store.snapshot(), 1, None, &mut |_| {
            calls += 1;
            if calls > fails_at { Err("full") } else { Ok(()) }
        });
        assert_eq!((result, calls), (Err("full"), fails_at + 1));
    }
}

#[test]
fn a_file_torn_anywhere_keeps_its_whole_records() {
    for seed in 0..6 {
        let file = file(&mut Random::new(seed), 5);
        for len in 0..file.bytes.len() {
            let whole = file.states.iter().rev().find(|(end, _)| *end <= len);
            let loaded = load(&file.bytes[..len]);
            let Some((end, state)) = whole else {
                assert!(loaded.is_err(), "seed {seed} length {len}");
                continue;
            };
            let loaded = loaded.unwrap();
            assert_eq!(content(&loaded.store), *state, "seed {seed} length {len}");
            assert_eq!((loaded.valid_len, loaded.file_len), (*end as u64, len as u64));
            assert_eq!(loaded.warning.is_some(), *end != len, "seed {seed} length {len}");
        }
    }
}

#[test]
fn a_file_damaged_anywhere_keeps_the_records_before() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut file = file(&mut random, 5);
        for at in 0..file.bytes.len() {
            let good = file.bytes[at];
            file.bytes[at] ^= 1 + random.below(255) as u8;
            let before = file.states.iter().rev().find(|(end, _)| *end <= at);
            match (load(&file.bytes), before) {
                (Ok(loaded), _) if loaded.warning.is_none() => {
                    // Letters of a hash may be of either case.
                    assert!(file.bytes[at].eq_ignore_ascii_case(&good), "seed {seed} byte {at}");
                    assert_eq!(content(&loaded.store), content(&file.store));
                }
                (Ok(loaded), Some((end, state))) => {
                    assert_eq!(loaded.valid_len, *end as u64, "seed {seed} byte {at}");
                    assert_eq!(content(&loaded.store), *state, "seed {seed} byte {at}");
                }
                (result, before) => assert!(result.is_err() && before.is_none()),
            }
            file.bytes[at] = good;
        }
    }
}

#[test]
fn pieces_of_any_size_make_no_difference() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut bytes = file(&mut random, 6).bytes;
        if random.chance(70) {
            bytes.truncate(1 + random.below(bytes.len()));
        }
        if random.chance(30) {
            bytes.extend_from_slice(b"OVSDB JSON nonsense\nand more\n");
        }
        let describe = |result: Result<weir_log::standalone::Loaded, _>| {
            result.map(|loaded| {
                let lengths = (loaded.valid_len, loaded.file_len, loaded.snapshot_len);
                (content(&loaded.store), lengths, loaded.records, loaded.warning)
            })
        };
        let whole = describe(load(&bytes));
        assert_eq!(describe(load_pieces(bytes.chunks(1))), whole, "seed {seed}");
        for _ in 0..10 {
            let mut rest = &bytes[..];
            let pieces = std::iter::from_fn(|| {
                let (piece, after) = rest.split_at(random.below(200).min(rest.len()));
                let more = !rest.is_empty();
                rest = after;
                more.then_some(piece)
            });
            assert_eq!(describe(load_pieces(pieces)), whole, "seed {seed}");
        }
    }
}
