//! Servers have the same rows in the end, and so have those that watch: each update fits what came before.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;
use weir_data::{AtomRef, ColumnId, Datum, Edit, Row as FullRow, Schema, UuidSource};
use weir_upstream::news::{News, Rows};

use super::{COUNTER, Items, Row, Verdict};
use crate::items::ids_in;
use crate::pipelines::is_uncounted;

/// The rows of somebody who watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    rows: BTreeMap<String, (String, u64)>,
    /// A hash of the rows, as long as all come as JSON.
    hash: u64,
    items: Items,
}

fn hash(row: impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    row.hash(&mut hash);
    hash.finish()
}

impl Replica {
    /// All rows are told again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
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
                self.hash ^= hash((id, &row));
                if self.rows.insert(id.clone(), row).is_some() {
                    return Err(format!("{id} is inserted twice"));
                }
            } else if let Some(row) = update.get("modify") {
                let Some(mine) = self.rows.get_mut(id) else {
                    return Err(format!("{id} is modified, and was not there"));
                };
                self.hash ^= hash((id, &*mine));
                mine.1 = row["n"].as_u64().unwrap_or(mine.1);
                mine.0 = name(row).unwrap_or_else(|| mine.0.clone());
                self.hash ^= hash((id, &*mine));
            } else {
                let mine = self.rows.remove(id);
                let mine = mine.ok_or_else(|| format!("{id} is deleted, and was not there"))?;
                self.hash ^= hash((id, &mine));
            }
        }
        self.take_items(&updates["Item"])?;
        self.take_list(&updates["List"])
    }

    fn take_items(&mut self, updates: &Value) -> Verdict {
        let names = &mut self.items.names;
        for (id, update) in updates.as_object().into_iter().flatten() {
            if let Some(row) = update.get("initial").or_else(|| update.get("insert")) {
                let name = row["name"].as_str().unwrap_or_default().to_owned();
                if names.insert(id.clone(), name).is_some() {
                    return Err(format!("item {id} is inserted twice"));
                }
            } else if update.get("delete").is_none() || names.remove(id).is_none() {
                return Err(format!("item {id} is not what is told of it: {update}"));
            }
        }
        Ok(())
    }

    fn take_list(&mut self, updates: &Value) -> Verdict {
        for (id, update) in updates.as_object().into_iter().flatten() {
            let kinds = ["initial", "insert", "modify"];
            let Some(row) = kinds.iter().find_map(|kind| update.get(kind)) else {
                return Err(format!("the list {id} is deleted"));
            };
            // A difference has what is new and what is gone.
            self.items.list = &self.items.list ^ &ids_in(&row["items"]);
            self.items.n = row["n"].as_u64().unwrap_or(self.items.n);
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
        let of = |name: &str| news.schema.table_id(name).expect("every schema has it");
        let (item, list) = (of("Item"), of("List"));
        let of_items = ItemColumns::of(&news.schema);
        let table = news.schema.table(of("T"));
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
                self.clear();
                let each = &mut |table, row: FullRow| {
                    if table == item {
                        of_items.insert(&mut self.items, &row)
                    } else if table == list {
                        of_items.change(&mut self.items, row.cells());
                        Ok(())
                    } else {
                        self.rows.insert(row.uuid().to_string(), whole(&row));
                        Ok(())
                    }
                };
                return all.take(message, versions, each);
            }
            Rows::Images(_) => return Err("every server has a newer method".to_owned()),
            Rows::Edits(edits) => edits,
        };
        for edit in edits {
            let id = edit.uuid.to_string();
            if edit.table == item {
                of_items.take_item(&mut self.items, id, &edit.edit)?;
                continue;
            }
            if edit.table == list {
                of_items.take_list(&mut self.items, &edit.edit)?;
                continue;
            }
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

    /// A hash of all that was told, as long as that came as JSON.
    pub(crate) fn hash(&self) -> u64 {
        self.hash ^ hash(&self.items)
    }

    /// The items.
    pub(crate) fn items(&self) -> &Items {
        &self.items
    }

    /// Each state has whole transactions: as many rows as were counted, if all of them are wanted.
    pub(crate) fn is_whole(&self, has_all: bool) -> Verdict {
        self.items.are_whole()?;
        if !has_all {
            return Ok(());
        }
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

/// The columns of items, and of the row that names and counts them.
struct ItemColumns {
    name: ColumnId,
    items: ColumnId,
    n: ColumnId,
}

impl ItemColumns {
    fn of(schema: &Schema) -> Self {
        let column = |table: &str, name: &str| {
            let table = schema.table(schema.table_id(table).expect("every schema has it"));
            table.column_id(name).expect("every schema has it")
        };
        Self {
            name: column("Item", "name"),
            items: column("List", "items"),
            n: column("List", "n"),
        }
    }

    fn insert(&self, items: &mut Items, row: &FullRow) -> Verdict {
        let Some(AtomRef::String(name)) = row.get(self.name).scalar() else {
            return Err("an item has no name".to_owned());
        };
        let id = row.uuid().to_string();
        match items.names.insert(id.clone(), name.as_str().to_owned()) {
            None => Ok(()),
            Some(_) => Err(format!("item {id} is inserted twice")),
        }
    }

    /// Columns of the list: a set is a difference, which of an empty one is all of it.
    fn change<'a>(&self, items: &mut Items, cells: impl Iterator<Item = (ColumnId, &'a Datum)>) {
        for (column, value) in cells {
            let value = value.as_ref();
            if column == self.items {
                let ids: BTreeSet<String> = value.keys().filter_map(id_in).collect();
                items.list = &items.list ^ &ids;
            } else if column == self.n
                && let Some(AtomRef::Integer(n)) = value.scalar()
            {
                items.n = n.unsigned_abs();
            }
        }
    }

    fn take_item(&self, items: &mut Items, id: String, edit: &Edit) -> Verdict {
        match edit {
            Edit::Insert(row) => self.insert(items, row),
            Edit::Delete if items.names.remove(&id).is_some() => Ok(()),
            edit => Err(format!("item {id} is not what is told of it: {edit:?}")),
        }
    }

    fn take_list(&self, items: &mut Items, edit: &Edit) -> Verdict {
        match edit {
            Edit::Insert(row) => self.change(items, row.cells()),
            Edit::Modify(columns) => {
                for edit in columns {
                    if !edit.is_difference && edit.column == self.items {
                        items.list.clear();
                    }
                    self.change(items, std::iter::once((edit.column, &edit.value)));
                }
            }
            Edit::Delete => return Err("the list is deleted".to_owned()),
        }
        Ok(())
    }
}

fn id_in(atom: AtomRef<'_>) -> Option<String> {
    match atom {
        AtomRef::Uuid(id) => Some(id.to_string()),
        _ => None,
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
        assert!(replica.is_whole(true).is_err(), "nobody has counted them");
        let before = replica.hash();
        replica.take(&json!({"T": {"1": {"modify": {"n": 7}}}})).expect("it fits");
        assert_ne!(replica.hash(), before);
        replica.take(&json!({"T": {"1": {"modify": {"n": 6}}}})).expect("it fits");
        assert_eq!(replica.hash(), before, "the same rows");
        let counter = json!({"T": {"7": {"insert": {"name": COUNTER, "n": 2}}}});
        replica.take(&counter).expect("it fits");
        assert_eq!(replica.is_whole(true), Ok(()));
        assert!(replica.take(&begin).is_err(), "inserted twice");
        assert!(replica.take(&json!({"T": {"3": {"modify": {"n": 6}}}})).is_err());
        assert!(replica.take(&json!({"T": {"3": {"delete": null}}})).is_err());
    }

    #[test]
    fn items_go_with_all_that_names_them() {
        let ids = |ids: &[&str]| {
            let atoms: Vec<Value> = ids.iter().map(|id| json!(["uuid", id])).collect();
            json!(["set", atoms])
        };
        let mut replica = Replica::default();
        let item = |name: &str| json!({"initial": {"name": name}});
        let begin = json!({"Item": {"1": item("a"), "2": item("b")},
            "List": {"9": {"initial": {"items": ids(&["1", "2"]), "n": 2}}}});
        replica.take(&begin).expect("it was empty");
        assert_eq!(replica.is_whole(false), Ok(()));
        let whole = replica.clone();
        let list = json!({"9": {"modify": {"items": ["uuid", "1"], "n": 1}}});
        let gone = json!({"1": {"delete": null}});
        replica.take(&json!({"Item": gone, "List": list})).expect("it fits");
        assert_eq!(replica.is_whole(false), Ok(()));
        assert!(replica.take(&json!({"Item": gone})).is_err(), "deleted twice");
        let mut half = whole.clone();
        half.take(&json!({"Item": gone})).expect("it was there");
        assert!(half.is_whole(false).is_err(), "it is named");
        let mut half = whole;
        half.take(&json!({"List": list})).expect("it was there");
        assert!(half.is_whole(false).is_err(), "it is not named");
    }
}
