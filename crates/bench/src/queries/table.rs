//! The database that `weir bench queries` asks: rows that are equal in each run, written as a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::Error;
use crate::dbfile;
use crate::rng::Rng;

pub(super) const DB: &str = "Bench_Queries";
/// Items of a group: as many as a query finds that does not name one row.
pub(super) const GROUP: usize = 10;
/// Different elements that many items' sets have.
const COMMON: usize = 16;

pub(super) fn name(item: usize) -> String {
    format!("item-{item:07}")
}

/// The value of a column that no index covers, of one item.
pub(super) fn serial(item: usize) -> String {
    format!("serial-{item:07}")
}

/// The value of a column that the items of a group share.
pub(super) fn owner(group: usize) -> String {
    format!("owner-{group:06}")
}

/// The element that is in the sets of the items of a group.
pub(super) fn tag(group: usize) -> String {
    format!("tag-{group:06}")
}

/// The value of the key `port` in the maps of the items of a group.
pub(super) fn port(group: usize) -> String {
    format!("port-{group:06}")
}

pub(super) fn item_uuid(item: usize) -> String {
    uuid(1, item)
}

pub(super) fn group_uuid(group: usize) -> String {
    uuid(2, group)
}

fn uuid(table: u64, n: usize) -> String {
    let mut mix = Rng::new(table);
    Rng::new(mix.next() ^ n as u64).uuid()
}

fn schema() -> Value {
    let text = json!({"type": "string"});
    let many = |key: Value| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    let map = json!({"key": "string", "value": "string", "min": 0, "max": "unlimited"});
    json!({"name": DB, "version": "1.0.0", "tables": {
        "Group": {"isRoot": true, "columns": {"name": text}},
        "Item": {"isRoot": true, "indexes": [["name"]], "columns": {
            "name": text,
            "serial": text,
            "owner": text,
            "priority": {"type": "integer"},
            "tags": many(json!("string")),
            "external_ids": {"type": map},
            "group": {"type": {"key": {"type": "uuid", "refTable": "Group"}}},
        }},
    }})
}

/// Writes the file of a database with so many items.
pub(super) fn write(path: &Path, items: usize) -> Result<(), Error> {
    let file = File::create(path).map_err(|e| Error::io("creating", path, e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let schema = schema().to_string();
    dbfile::record(&mut out, &mut |out| out.write_all(schema.as_bytes()))
        .and_then(|_| dbfile::record(&mut out, &mut |out| rows(items, out)))
        .and_then(|_| out.flush())
        .map_err(|e| Error::io("writing", path, e))
}

/// All rows, as one transaction.
fn rows(items: usize, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(br#"{"_date":1767225600000,"_is_diff":true,"Group":{"#)?;
    for group in 0..items.div_ceil(GROUP) {
        let comma = if group == 0 { "" } else { "," };
        write!(out, r#"{comma}"{}":{{"name":"group-{group:06}"}}"#, group_uuid(group))?;
    }
    out.write_all(br#"},"Item":{"#)?;
    for item in 0..items {
        let (comma, group) = (if item == 0 { "" } else { "," }, item / GROUP);
        write!(
            out,
            concat!(
                r#"{comma}"{uuid}":{{"name":"{name}","serial":"{serial}","owner":"{owner}","#,
                r#""priority":{item},"tags":["set",["common-{common:02}","{tag}"]],"#,
                r#""external_ids":["map",[["port","{port}"]]],"group":["uuid","{of}"]}}"#
            ),
            comma = comma,
            uuid = item_uuid(item),
            name = name(item),
            serial = serial(item),
            owner = owner(group),
            item = item,
            common = item % COMMON,
            tag = tag(group),
            port = port(group),
            of = group_uuid(group),
        )?;
    }
    out.write_all(b"}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json_and_every_item_has_its_group() {
        let mut text = Vec::new();
        rows(25, &mut text).unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(all["Group"].as_object().unwrap().len(), 3);
        let items = all["Item"].as_object().unwrap();
        assert_eq!(items.len(), 25);
        assert!(
            items.values().all(|item| !all["Group"][item["group"][1].as_str().unwrap()].is_null())
        );
        assert_eq!(items[&item_uuid(24)]["owner"], owner(2));
    }
}
