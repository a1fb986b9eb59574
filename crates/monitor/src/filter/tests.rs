//! Filters against their conditions, clause by clause.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use foldhash::fast::FixedState;
use weir_data::condition::{Clause, Condition};
use weir_data::{ColumnId, Datum, DatumRef, Row, Schema, Store, TableId, Uuid, UuidSource};
use weir_json::validate_value;

use super::Filter;
use crate::cost::{Budget, TooLong};
use crate::rows::{Rows, Told};

const SCHEMA: &str = r#"{"name":"Filters","tables":{"T":{"indexes":[["key"]],"columns":{
    "key":{"type":"integer"},
    "n":{"type":"integer"},
    "tag":{"type":{"key":"integer","min":0,"max":1}},
    "load":{"type":"real"},
    "set":{"type":{"key":"integer","min":0,"max":"unlimited"}},
    "map":{"type":{"key":"integer","value":"integer","min":0,"max":"unlimited"}}}}}}"#;

const TABLE: TableId = TableId(0);

struct World {
    store: Store,
    random: UuidSource,
    hasher: FixedState,
}

impl World {
    /// Rows with keys 0, 1, 2 ...
    fn new(seed: u64, n_rows: u64) -> Self {
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).expect("a valid schema");
        let mut random = UuidSource::new([seed, 1, 2, 3]);
        (0..16).for_each(|_| _ = random.next_u64());
        let store = Store::new(Arc::new(schema), seed);
        let mut world = Self { store, random, hasher: FixedState::with_seed(seed) };
        for key in 0..n_rows {
            let columns = ["n", "tag", "load", "set", "map"];
            let mut values: Vec<(ColumnId, Datum)> = columns.map(|c| world.cell(c)).into();
            values.push(world.datum("key", &key.to_string()));
            values.sort_by_key(|(column, _)| *column);
            let uuid = Uuid::from_u128(u128::from(key));
            let table = world.store.schema().table(TABLE);
            let row = Row::with_values(uuid, Uuid::ZERO, table, values);
            world.store.insert(TABLE, row);
        }
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn datum(&self, column: &str, json: &str) -> (ColumnId, Datum) {
        let table = self.store.schema().table(TABLE);
        let id = table.column_id(column).expect("a column");
        let text = validate_value(json.as_bytes()).expect("JSON");
        (id, Datum::parse(text, &table.column(id).ty, None).expect("a value"))
    }

    fn cell(&mut self, column: &str) -> (ColumnId, Datum) {
        let json = self.value(column, 3);
        self.datum(column, &json)
    }

    /// JSON of a value; sets and maps of fewer than `n` entries.
    fn value(&mut self, column: &str, n: u64) -> String {
        let n = self.below(n);
        match column {
            "tag" if n == 0 => r#"["set",[]]"#.to_owned(),
            "set" => {
                let first = self.below(6);
                let elements: Vec<String> = (0..n).map(|i| (first + i).to_string()).collect();
                format!(r#"["set",[{}]]"#, elements.join(","))
            }
            "map" => {
                let first = self.below(6);
                let pairs: Vec<String> =
                    (0..n).map(|i| format!("[{},{}]", first + i, self.below(2))).collect();
                format!(r#"["map",[{}]]"#, pairs.join(","))
            }
            _ => self.below(6).to_string(),
        }
    }

    /// A condition of so many clauses at most.
    fn condition(&mut self, most: u64) -> Condition {
        let n = self.below(most);
        let columns = ["_uuid", "key", "n", "tag", "load", "set", "map"];
        let clauses = (0..n).map(|_| {
            let column = columns[self.below(7) as usize];
            let functions: &[&str] = match column {
                "_uuid" => &["=="],
                "set" | "map" => &["==", "!=", "includes", "excludes", "includes", "excludes"],
                "tag" => &["==", "<", "<=", ">", ">=", "includes", "excludes"],
                _ => &["==", "==", "!=", "<", "<=", ">", ">=", "includes", "excludes"],
            };
            let function = functions[self.below(functions.len() as u64) as usize];
            let value = match column {
                "_uuid" => format!(r#"["uuid","{}"]"#, Uuid::from_u128(u128::from(self.below(40)))),
                "tag" if function.starts_with(['<', '>']) => self.below(6).to_string(),
                _ => self.value(column, 4),
            };
            format!(r#"["{column}","{function}",{value}]"#)
        });
        let mut clauses: Vec<String> = clauses.collect();
        if self.below(8) == 0 {
            clauses.push("false".to_owned());
        }
        self.parse(&format!("[{}]", clauses.join(",")))
    }

    fn parse(&self, json: &str) -> Condition {
        let text = validate_value(json.as_bytes()).expect("JSON");
        Condition::parse(text, self.store.schema().table(TABLE), None)
            .unwrap_or_else(|error| panic!("{error}: {json}"))
    }

    fn filter(&self, condition: &Condition) -> Filter {
        Filter::new(condition.clone(), &self.hasher)
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.store.table(TABLE).iter()
    }

    /// What a key finds that knows every column: a row more than it should, and at most so many.
    fn candidates(&self, clause: &Clause, most: usize) -> (Option<Vec<Uuid>>, u64) {
        let superfluous = self.rows().last().map(Row::uuid);
        let found = self.rows().filter(|row| clause.matches(row)).map(Row::uuid);
        let found: Vec<Uuid> = found.chain(superfluous).collect();
        let walked = found.len().min(most + 1) as u64;
        ((found.len() <= most).then_some(found), walked)
    }

    /// What the unique index on `key` finds.
    fn find(&self, values: &[DatumRef<'_>]) -> Option<Uuid> {
        let key = self.store.schema().table(TABLE).column_id("key").expect("a column");
        self.rows().find(|row| row.get(key) == values[0]).map(Row::uuid)
    }
}

#[test]
fn a_filter_asks_for_the_rows_for_which_any_clause_holds() {
    let (mut asked, mut found) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed, 40);
        for most in [3, 3, 6, 12, 60] {
            let condition = world.condition(most);
            let filter = world.filter(&condition);
            for row in world.rows() {
                let expected = condition.matches_any(row);
                assert_eq!(filter.matches(row), expected, "{condition:?} on {row:?}");
                asked += 1;
                found += usize::from(expected);
            }
            assert!(!filter.matches_no_row() || !world.rows().any(|row| filter.matches(row)));
            let by_index = |table, index, values: &[DatumRef<'_>]| {
                assert_eq!((table, index), (TABLE, 0));
                world.find(values)
            };
            let rows = Rows::new(&world.store, &by_index);
            let expected = world.rows().filter(|row| condition.matches_any(row)).map(Row::uuid);
            let expected: Vec<Uuid> = expected.collect();
            let candidates = |_, clause: &Clause, most| world.candidates(clause, most);
            for rows in [rows, rows.with_keys(&candidates, &|_| {})] {
                let matching = rows.matching(TABLE, &filter, &mut Budget::unlimited());
                let matching = matching.expect("no bound").into_iter().map(Row::uuid);
                assert_eq!(matching.collect::<Vec<_>>(), expected, "{condition:?}");
            }
        }
    }
    assert!(found > asked / 10 && found < asked * 9 / 10, "{found} of {asked}");
}

#[test]
fn rows_are_found_by_keys_where_these_find_few() {
    let world = World::new(1, 400);
    let asked = Cell::new(0);
    let candidates = |_, clause: &Clause, most| {
        asked.set(asked.get() + 1);
        world.candidates(clause, most)
    };
    let scanned = Cell::new(None);
    let tell = |told: Told<'_>| {
        scanned.set(match told {
            Told::Found { .. } => None,
            Told::Scanned { clause, found, .. } => Some((clause.is_some(), found.is_some())),
        });
    };
    let rows = Rows::of_store(&world.store).with_keys(&candidates, &tell);
    let keys = |n: usize| {
        let clauses: Vec<String> = (0..n).map(|n| format!(r#"["key","==",{}]"#, 3 * n)).collect();
        format!("[{}]", clauses.join(","))
    };
    let map = r#"[["key","==",7],["map","includes",["map",[[1,1],[2,1]]]]]"#;
    for (condition, is_by_key) in [
        (keys(2), true),
        (map.to_owned(), true),
        (r#"[["load","<",0.0],["key","==",7]]"#.to_owned(), true),
        // A sixth of the rows.
        (r#"[["n","==",3]]"#.to_owned(), false),
        // Each finds a row too many, and together they find an eighth.
        (keys(20), true),
        (keys(30), false),
    ] {
        asked.set(0);
        let condition = world.parse(&condition);
        let filter = world.filter(&condition);
        // Not enough for a look at every row.
        let found = rows.matching(TABLE, &filter, &mut Budget::new(390));
        assert_eq!(found.is_ok(), is_by_key, "{condition:?}");
        assert_eq!(scanned.get(), (!is_by_key).then_some((true, false)), "{condition:?}");
        assert!(asked.get() > 0);
        let found = rows.matching(TABLE, &filter, &mut Budget::unlimited()).expect("no bound");
        let expected: Vec<&Row> = world.rows().filter(|row| condition.matches_any(row)).collect();
        assert_eq!(found, expected, "{condition:?}");
        assert_eq!(scanned.get(), (!is_by_key).then_some((true, true)), "{condition:?}");
        assert!(!found.is_empty());
    }
    // No key serves who asks for all but a few.
    asked.set(0);
    let filter = world.filter(&world.parse(r#"[["key","==",7],["n","!=",3]]"#));
    rows.matching(TABLE, &filter, &mut Budget::unlimited()).expect("no bound");
    assert_eq!((scanned.get(), asked.get()), (Some((false, true)), 0));
}

#[test]
fn what_is_walked_in_keys_in_vain_is_paid_for() {
    let world = World::new(1, 400);
    let most_of = RefCell::new(Vec::new());
    // What two elements have in common is nothing, and that is known behind both.
    let candidates = |_, _: &Clause, most: usize| {
        most_of.borrow_mut().push(most);
        if most < 30 { (None, 30) } else { (Some(Vec::new()), 320) }
    };
    let rows = Rows::of_store(&world.store).with_keys(&candidates, &|_| {});
    let clauses: Vec<String> =
        (0..4).map(|n| format!(r#"["set","includes",["set",[{n},{}]]]"#, n + 10)).collect();
    let filter = |n: usize| world.filter(&world.parse(&format!("[{}]", clauses[..n].join(","))));
    let found = rows.matching(TABLE, &filter(1), &mut Budget::new(100));
    assert_eq!(found.map(|rows| rows.len()), Ok(0));
    assert!(rows.matching(TABLE, &filter(2), &mut Budget::new(150)).is_err());
    // As much as a look at every row costs is not walked.
    most_of.borrow_mut().clear();
    rows.matching(TABLE, &filter(4), &mut Budget::unlimited()).expect("no bound");
    assert_eq!(most_of.into_inner(), [50, 40, 30, 20]);
}

#[test]
fn the_difference_asks_for_every_row_that_appears_or_vanishes() {
    let (mut differing, mut superfluous) = (0, 0);
    for seed in 100..200 {
        let mut world = World::new(seed, 40);
        let mut condition = world.condition(12);
        for _ in 0..6 {
            let before = world.filter(&condition);
            match world.below(3) {
                0 => condition.clauses.extend(world.condition(3).clauses),
                1 => drop(condition.clauses.pop()),
                _ => condition = world.condition(12),
            }
            let after = world.filter(&condition);
            let difference = before.difference(&after);
            for row in world.rows() {
                let differs = before.matches(row) != after.matches(row);
                assert!(!differs || difference.matches(row), "{condition:?} on {row:?}");
                differing += usize::from(differs);
                superfluous += usize::from(!differs && difference.matches(row));
            }
            assert!(before != after || difference.matches_no_row());
        }
    }
    assert!(differing > 1000 && superfluous < 3 * differing, "{differing}, {superfluous}");
}

#[test]
fn equal_conditions_have_equal_filters() {
    let world = World::new(1, 0);
    let filter = |json: &str| world.filter(&world.parse(json));
    for (one, other) in [
        (r#"[["n","==",1],["key","==",2]]"#, r#"[["key","==",2],["n","==",1],["key","==",2]]"#),
        (r#"[["n","<",3],["n","<=",5],["n","<",5]]"#, r#"[["n","<=",5]]"#),
        (r#"[["n",">",3],["n",">=",3],["n",">=",4]]"#, r#"[["n",">=",3]]"#),
        (r#"[["load","==",0.0]]"#, r#"[["load","==",-0.0]]"#),
        ("[]", "[true]"),
        ("[false]", "[false,false]"),
        (r#"[["n","!=",1],["n","!=",2]]"#, r#"[["n","==",1],true]"#),
        (
            r#"[["set","includes",["set",[1,2]]],["set","includes",1]]"#,
            r#"[["set","includes",1],["set","includes",["set",[2,1]]]]"#,
        ),
    ] {
        assert_eq!(filter(one), filter(other), "{one} and {other}");
        assert_eq!(filter(one).digest(), filter(other).digest());
    }
    for (one, other) in [
        ("[]", "[false]"),
        (r#"[["n","==",1]]"#, r#"[["key","==",1]]"#),
        (r#"[["n","==",1]]"#, r#"[["n","!=",1]]"#),
        (r#"[["set","includes",1]]"#, r#"[["set","==",1]]"#),
        (r#"[["set","includes",1]]"#, r#"[["set","excludes",1]]"#),
        (r#"[["n","<",3]]"#, r#"[["n",">",3]]"#),
        (r#"[true,["n","==",1]]"#, "[true]"),
    ] {
        assert_ne!(filter(one), filter(other), "{one} and {other}");
    }
}

#[test]
fn what_a_row_costs_does_not_grow_with_the_clauses() {
    let world = World::new(1, 2000);
    let list = |clause: &dyn Fn(usize) -> String, n: usize| {
        let clauses: Vec<String> = (0..n).map(clause).collect();
        format!("[{}]", clauses.join(","))
    };
    let clauses: [&dyn Fn(usize) -> String; 6] = [
        &|i| format!(r#"["n","==",{i}]"#),
        &|i| format!(r#"["set","includes",{i}]"#),
        &|i| format!(r#"["map","includes",["map",[[{i},{i}]]]]"#),
        &|i| format!(r#"["n","<",{i}]"#),
        &|i| format!(r#"["load",">=",{i}]"#),
        &|i| format!(r#"["set","excludes",{i}]"#),
    ];
    for clause in clauses {
        let costs = [1, 10_000].map(|n| world.filter(&world.parse(&list(clause, n))).row_cost());
        assert!(costs[1] <= costs[0] + 1, "{costs:?} for {}", clause(0));
    }
    // Ten thousand sets that have an entry in common are asked one by one, and that is counted.
    let common = list(&|i| format!(r#"["set","includes",["set",[-1,{i}]]]"#), 10_000);
    assert!(world.filter(&world.parse(&common)).row_cost() >= 10_000);
    let found = list(&|i| format!(r#"["key","==",{}]"#, 10 * i), 100);
    let filter = world.filter(&world.parse(&found));
    let find = |_, _, values: &[DatumRef<'_>]| world.find(values);
    let rows = Rows::new(&world.store, &find);
    let matching = |most| rows.matching(TABLE, &filter, &mut Budget::new(most)).map(|v| v.len());
    assert_eq!(matching(1000), Ok(100), "a look-up each, whatever the number of rows");
    assert_eq!(matching(100), Err(TooLong));
    assert_eq!(
        Rows::of_store(&world.store).matching(TABLE, &filter, &mut Budget::new(1000)),
        Err(TooLong),
        "without an index every row is looked at"
    );
}
