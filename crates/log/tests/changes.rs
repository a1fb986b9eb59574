//! What a reader tells of each record: its frame, its mark, and what it changed, both ways.

mod sample;

use std::collections::BTreeMap;
use std::sync::Arc;

use sample::{Content, Random, content};
use weir_data::delta::ColumnDelta;
use weir_data::{ColumnId, Delta, Row, RowDelta, Schema, Store, TableSchema, Uuid};
use weir_log::record::End;
use weir_log::standalone::{Form, Replayer, Style, write_schema, write_transaction_as};

/// A record as it was written.
struct Wrote {
    start: u64,
    end: End,
    delta: Delta,
    /// What the file holds before the record.
    before: Content,
}

struct File {
    bytes: Vec<u8>,
    schema: Arc<Schema>,
    wrote: Vec<Wrote>,
    content: Content,
}

fn file(random: &mut Random, records: usize) -> File {
    let schema = Schema::parse_bytes(sample::schema_text(random).as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let hash = write_schema(&mut bytes, &schema);
    assert!(String::from_utf8_lossy(&bytes).contains(&hash.to_string()));
    let schema = Arc::new(schema);
    let mut store = Store::new(Arc::clone(&schema), 7);
    let mut wrote = Vec::new();
    for _ in 0..records {
        let (before, start) = (content(&store), bytes.len() as u64);
        let delta = sample::transaction(random, &store);
        store.apply(&delta);
        let form = if random.chance(70) { Form::Difference } else { Form::Whole };
        let style = Style { form, is_marked: random.chance(70) };
        let Some(written) = write_transaction_as(style, &mut bytes, &delta, &store, 1, None) else {
            continue;
        };
        let end = End {
            offset: bytes.len() as u64,
            body_len: written.body_len,
            hash: written.hash,
            is_marked: style.is_marked,
        };
        wrote.push(Wrote { start, end, delta, before });
    }
    File { bytes, schema, wrote, content: content(&store) }
}

/// By row what a file keeps of a change, with nothing that changes nothing.
fn kept(delta: &Delta, schema: &Schema) -> BTreeMap<(usize, Uuid), Vec<String>> {
    let row = |delta: &RowDelta, table: &TableSchema| match delta {
        RowDelta::Insert(row) => whole("insert", row, table),
        RowDelta::Delete(row) => whole("delete", row, table),
        RowDelta::Modify(columns) => {
            assert!(columns.windows(2).all(|pair| pair[0].column < pair[1].column));
            let kept = |delta: &&ColumnDelta| {
                delta.column > ColumnId::VERSION
                    && table.column(delta.column).persistent
                    && !delta.change.is_empty()
            };
            let text = |ColumnDelta { column, change }: &ColumnDelta| {
                let added: Vec<_> = change.added().collect();
                let removed: Vec<_> = change.removed().collect();
                format!("{column:?} +{added:?} -{removed:?}")
            };
            columns.iter().filter(kept).map(text).collect()
        }
    };
    assert!(delta.tables.windows(2).all(|pair| pair[0].table < pair[1].table));
    let rows = delta
        .rows()
        .map(|(table, uuid, delta)| ((table.index(), uuid), row(delta, schema.table(table))));
    rows.filter(|(_, kept)| !kept.is_empty()).collect()
}

fn whole(what: &str, row: &Row, table: &TableSchema) -> Vec<String> {
    let kept = table.data_columns().filter(|(_, column)| column.persistent);
    let filled = kept.filter(|(id, column)| !row.get(*id).is_default(&column.ty));
    let text = |(id, _)| format!("{id:?} {:?}", row.get(id).entries().collect::<Vec<_>>());
    [what.to_owned()].into_iter().chain(filled.map(text)).collect()
}

#[test]
fn every_record_is_told_and_its_change_can_be_undone() {
    let mut undone = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let file = file(&mut random, 10);
        let from = random.below(file.bytes.len()) as u64;
        let mut told = Vec::new();
        let mut replayer =
            Replayer::seekable("db", 3, if random.chance(50) { 0 } else { u64::MAX });
        replayer.tell_deltas_from(from);
        let (mut at, step) = (0, 1 + random.below(3000));
        while at < file.bytes.len() {
            let end = file.bytes.len().min(at + step);
            let each = &mut |record: weir_log::standalone::Replayed<'_>| {
                assert_eq!(record.number, told.len() as u64 + 1);
                told.push((record.end, record.delta));
            };
            replayer.feed_with(&file.bytes[at..end], each).unwrap();
            at = replayer.again_from().map_or(end, |offset| offset as usize);
        }
        let mut store = replayer.finish().unwrap().store;
        assert_eq!(content(&store), file.content);
        assert_eq!(told.len(), file.wrote.len() + 1);
        let mut told: Vec<_> = told.into_iter().skip(1).zip(&file.wrote).collect();
        for ((end, delta), wrote) in &told {
            assert_eq!(*end, wrote.end, "seed {seed}");
            let is_due = wrote.end.is_marked && wrote.start >= from;
            assert_eq!(delta.is_some(), is_due, "seed {seed}");
            if let Some(delta) = delta {
                let (told, written) = (kept(delta, &file.schema), kept(&wrote.delta, &file.schema));
                assert_eq!(told, written, "seed {seed}");
            }
        }
        while let Some(((_, Some(delta)), wrote)) = told.pop() {
            store.apply(&delta.inverse());
            assert_eq!(content(&store), wrote.before, "seed {seed}");
            undone += 1;
        }
    }
    assert!(undone > 100, "{undone}");
}

#[test]
fn the_mark_is_a_space_before_the_last_newline() {
    let file = file(&mut Random::new(5), 10);
    let mut marked = 0;
    for Wrote { end, .. } in &file.wrote {
        let body = &file.bytes[(end.offset - end.body_len) as usize..end.offset as usize];
        assert_eq!(body.ends_with(b"} \n"), end.is_marked);
        assert!(body.ends_with(b"} \n") || body.ends_with(b"}\n"));
        marked += usize::from(end.is_marked);
    }
    assert!(marked > 0 && marked < file.wrote.len());
}

#[test]
fn what_a_record_with_equal_keys_changes_is_not_told() {
    let schema = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;
    let mut bytes = Vec::new();
    write_schema(&mut bytes, &Schema::parse_bytes(schema.as_bytes()).unwrap());
    let row = |n: u8| format!(r#""12345671-1234-1234-1234-123456789abc":{{"n":{n}}}"#);
    for rows in [row(1), format!("{},{}", row(2), row(3)), row(4)] {
        let json = format!(r#"{{"T":{{{rows}}}}} "#);
        weir_log::record::write_record(&mut bytes, json.as_bytes());
    }
    let mut replayer = Replayer::new("db", 1);
    replayer.tell_deltas_from(0);
    let mut told = Vec::new();
    replayer.feed_with(&bytes, &mut |record| told.push(record.delta.is_some())).unwrap();
    assert_eq!(told, [false, true, false, true]);
}
