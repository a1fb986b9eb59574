//! Servers have the same rows in the end, and so have those that watch: each update fits what came before.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_data::{AtomRef, ColumnId, Datum, Edit, Row as FullRow, UuidSource};
use weir_upstream::news::{News, Rows};

use super::{COUNTER, Row, Verdict};
use crate::pipelines::is_uncounted;

/// The rows of somebody who watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    rows: BTreeMap<String, (String, u64)>,
}

impl Replica {
    /// All rows are told again.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// What was told (`<table-updates2>`).
    pub(crate) fn take(&mut self, updates: &Value) -> Verdict {
        for (id, update) in updates["T"].as_object().into_iter().flatten() {
            let name = |row: &Value| row["name"].as_str().map(str::to_owned);
            if let Some(row) = update.get("initial").or_else(|| update.get("insert")) {
                let row = (name(row).unwrap_or_default(), row["n"].as_u64().unwrap_or(0));
                if self.rows.insert(id.clone(), row).is_some() {
                    return Err(format!("{id} is inserted twice"));
                }
            } else if let Some(row) = update.get("modify") {
                let Some(mine) = self.rows.get_mut(id) else {
                    return Err(format!("{id} is modified, and was not there"));
                };
                mine.1 = row["n"].as_u64().unwrap_or(mine.1);
                mine.0 = name(row).unwrap_or_else(|| mine.0.clone());
            } else if self.rows.remove(id).is_none() {
                return Err(format!("{id} is deleted, and was not there"));
            }
        }
        Ok(())
    }

    /// What a follower was told, in a message.
    pub(crate) fn take_news(
        &mut self,
        news: News,
        message: Vec<u8>,
        versions: &mut UuidSource,
    ) -> Verdict {
        let table = news.schema.table(news.schema.table_id("T").expect("every schema has it"));
        let column = |name: &str| table.column_id(name).expect("every schema has it");
        let (name, n) = (column("name"), column("n"));
        // The values that are told of a row, which may be some.
        let change = |row: &mut (String, u64),
                      cells: &mut dyn Iterator<Item = (ColumnId, &Datum)>| {
            for (column, value) in cells {
                match value.as_ref().scalar() {
                    Some(AtomRef::String(text)) if column == name => {
                        row.0 = text.as_str().to_owned()
                    }
                    Some(AtomRef::Integer(value)) if column == n => row.1 = value.unsigned_abs(),
                    _ => {}
                }
            }
        };
        let whole = |row: &FullRow| {
            let mut values = (String::new(), 0);
            change(&mut values, &mut row.cells());
            values
        };
        let edits = match news.rows {
            Rows::All(all) => {
                self.rows.clear();
                let each = &mut |_, row: FullRow| {
                    self.rows.insert(row.uuid().to_string(), whole(&row));
                    Ok(())
                };
                return all.take(message, versions, each);
            }
            Rows::Images(_) => return Err("every server has a newer method".to_owned()),
            Rows::Edits(edits) => edits,
        };
        for edit in edits {
            let id = edit.uuid.to_string();
            match edit.edit {
                Edit::Insert(row) => {
                    if self.rows.insert(id.clone(), whole(&row)).is_some() {
                        return Err(format!("{id} is inserted twice"));
                    }
                }
                Edit::Modify(columns) => {
                    let Some(mine) = self.rows.get_mut(&id) else {
                        return Err(format!("{id} is modified, and was not there"));
                    };
                    change(mine, &mut columns.iter().map(|edit| (edit.column, &edit.value)));
                }
                Edit::Delete if self.rows.remove(&id).is_none() => {
                    return Err(format!("{id} is deleted, and was not there"));
                }
                Edit::Delete => {}
            }
        }
        Ok(())
    }

    /// Each state has whole transactions: as many rows as were counted, if all of them are wanted.
    pub(crate) fn is_whole(&self) -> Verdict {
        let counted = self.rows.values().find(|(name, _)| name == COUNTER).map_or(0, |(_, n)| *n);
        let rows = self.rows.values().filter(|(name, _)| !is_uncounted(name)).count() as u64;
        match counted == rows {
            true => Ok(()),
            false => Err(format!("{rows} rows, of which {counted} were counted")),
        }
    }

    /// The rows, in the order of their ids.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let row = |(id, (name, n)): (&String, &(String, u64))| Row {
            id: id.clone(),
            name: name.clone(),
            n: *n,
        };
        self.rows.iter().map(row).collect()
    }
}

/// Whether two have the same rows.
pub(crate) fn same(who: &str, expected: &[Row], rows: &[Row]) -> Verdict {
    if expected == rows {
        return Ok(());
    }
    let lacks: Vec<&Row> = expected.iter().filter(|row| !rows.contains(row)).take(5).collect();
    let more: Vec<&Row> = rows.iter().filter(|row| !expected.contains(row)).take(5).collect();
    Err(format!("{who} lacks {lacks:?}, and has {more:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_replica_follows_what_it_is_told() {
        let mut replica = Replica::default();
        let begin = json!({"T": {"1": {"initial": {"name": "a", "n": 5}}}});
        replica.take(&begin).expect("it was empty");
        let update = json!({"T": {"1": {"modify": {"n": 6}}, "2": {"insert": {"name": "b"}}}});
        replica.take(&update).expect("it fits");
        let row = |id: &str, name: &str, n| Row { id: id.into(), name: name.into(), n };
        let rows = [row("1", "a", 6), row("2", "b", 0)];
        assert_eq!(same("it", &rows, &replica.rows()), Ok(()));
        assert!(same("it", &rows[..1], &replica.rows()).is_err());
        assert!(replica.is_whole().is_err(), "nobody has counted them");
        let counter = json!({"T": {"7": {"insert": {"name": COUNTER, "n": 2}}}});
        replica.take(&counter).expect("it fits");
        assert_eq!(replica.is_whole(), Ok(()));
        assert!(replica.take(&begin).is_err(), "inserted twice");
        assert!(replica.take(&json!({"T": {"3": {"modify": {"n": 6}}}})).is_err());
        assert!(replica.take(&json!({"T": {"3": {"delete": null}}})).is_err());
    }
}
