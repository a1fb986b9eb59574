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
    rows: Kept,
    items: Items,
}

/// Rows by their ids. What is looked at in each state costs no walk over all rows.
#[derive(Clone, Debug, Default)]
struct Kept {
    by_id: BTreeMap<String, Row>,
    /// A hash of all rows.
    hash: u64,
    /// How many rows there are of those that clients count.
    countable: u64,
    /// How many clients have counted.
    counted: u64,
}

fn hash(row: impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    row.hash(&mut hash);
    hash.finish()
}

impl Kept {
    /// Notes a row in the hash, which a second time takes it out again; what the row adds to the counts.
    fn weigh(&mut self, row: &Row) -> (u64, u64) {
        self.hash ^= hash(row);
        match row.name.as_str() {
            COUNTER => (0, row.n),
            name => (u64::from(!is_uncounted(name)), 0),
        }
    }

    fn insert(&mut self, row: Row) -> Verdict {
        let (countable, counted) = self.weigh(&row);
        self.countable += countable;
        self.counted += counted;
        match self.by_id.insert(row.id.clone(), row) {
            None => Ok(()),
            Some(twice) => Err(format!("{} is inserted twice", twice.id)),
        }
    }

    fn modify(&mut self, id: &str, change: impl FnOnce(&mut Row)) -> Verdict {
        let mut row =
            self.remove(id).map_err(|_| format!("{id} is modified, and was not there"))?;
        change(&mut row);
        self.insert(row)
    }

    fn remove(&mut self, id: &str) -> Result<Row, String> {
        let row = self.by_id.remove(id);
        let row = row.ok_or_else(|| format!("{id} is deleted, and was not there"))?;
        let (countable, counted) = self.weigh(&row);
        self.countable -= countable;
        self.counted -= counted;
        Ok(row)
    }
}

impl Replica {
    /// All rows are told again.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.by_id.len()
    }

    /// What was told (`<table-updates2>`).
    pub(crate) fn take(&mut self, updates: &Value) -> Verdict {
        for (id, update) in updates["T"].as_object().into_iter().flatten() {
            let name = |row: &Value| row["name"].as_str().map(str::to_owned);
            if let Some(row) = update.get("initial").or_else(|| update.get("insert")) {
                let (name, n) = (name(row).unwrap_or_default(), row["n"].as_u64().unwrap_or(0));
                self.rows.insert(Row { id: id.clone(), name, n })?;
            } else if let Some(row) = update.get("modify") {
                self.rows.modify(id, |mine| {
                    mine.n = row["n"].as_u64().unwrap_or(mine.n);
                    mine.name = name(row).unwrap_or_else(|| mine.name.clone());
                })?;
            } else {
                self.rows.remove(id)?;
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
        let change = |row: &mut Row, cells: &mut dyn Iterator<Item = (ColumnId, &Datum)>| {
            for (column, value) in cells {
                match value.as_ref().scalar() {
                    Some(AtomRef::String(text)) if column == name => {
                        row.name = text.as_str().to_owned();
                    }
                    Some(AtomRef::Integer(value)) if column == n => row.n = value.unsigned_abs(),
                    _ => {}
                }
            }
        };
        let whole = |full: &FullRow| {
            let mut row = Row { id: full.uuid().to_string(), name: String::new(), n: 0 };
            change(&mut row, &mut full.cells());
            row
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
                        self.rows.insert(whole(&row))
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
                Edit::Insert(row) => self.rows.insert(whole(&row))?,
                Edit::Modify(columns) => {
                    let cells = &mut columns.iter().map(|edit| (edit.column, &edit.value));
                    self.rows.modify(&id, |mine| change(mine, cells))?;
                }
                Edit::Delete => drop(self.rows.remove(&id)?),
            }
        }
        Ok(())
    }

    /// A hash of all that was told.
    pub(crate) fn hash(&self) -> u64 {
        self.rows.hash ^ hash(&self.items)
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
        let Kept { countable, counted, .. } = self.rows;
        match counted == countable {
            true => Ok(()),
            false => Err(format!("{countable} rows, of which {counted} were counted")),
        }
    }

    /// The rows, in the order of their ids.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> + Clone {
        self.rows.by_id.values()
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
pub(crate) fn same<'a>(
    who: &str,
    expected: impl Iterator<Item = &'a Row> + Clone,
    rows: impl Iterator<Item = &'a Row> + Clone,
) -> Verdict {
    if expected.clone().eq(rows.clone()) {
        return Ok(());
    }
    let (expected, rows): (BTreeSet<&Row>, BTreeSet<&Row>) = (expected.collect(), rows.collect());
    let lacks: Vec<&&Row> = expected.difference(&rows).take(5).collect();
    let more: Vec<&&Row> = rows.difference(&expected).take(5).collect();
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
        assert_eq!(same("it", rows.iter(), replica.rows()), Ok(()));
        assert!(same("it", rows[..1].iter(), replica.rows()).is_err());
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
