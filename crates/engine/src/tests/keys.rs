//! Keys against scans: the same requests to a database whose keys come and go at random, and to its
//! dumb twin, which has none and looks at every row, have the same answers, row by row.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use weir_data::condition::Clause;
use weir_data::{ColumnId, Row, Schema, TableId, Uuid, UuidSource};
use weir_json::{Text, validate};

use super::world::Random;
use crate::database::Database;
use crate::execute::{Done, Env, Outcome, execute};
use crate::keys::{KeyKind, KeyName};
use crate::planner::Searches;

/// Schemas tried.
const SCHEMAS: u64 = 120;
/// Transactions tried on each.
const TRANSACTIONS: usize = 60;
/// Rows of the tables that begin with many.
const MANY: u64 = 1_200;
const TABLES: u64 = 2;

/// What columns are made of: the type, and what values are spelt like.
#[derive(Clone, Copy, Debug)]
enum Base {
    Integer,
    Real,
    Boolean,
    String,
    Weak,
    Strong,
}

#[derive(Clone, Debug)]
struct Column {
    key: Base,
    value: Option<Base>,
    min: u64,
    max: u64,
    to: u64,
}

struct World {
    tables: Vec<Vec<Column>>,
    /// Values of each type, and rows that are referred to by choice.
    domain: u64,
    rows: u64,
}

impl Base {
    fn ty(self, to: u64) -> String {
        match self {
            Self::Integer => r#""integer""#.into(),
            Self::Real => r#""real""#.into(),
            Self::Boolean => r#""boolean""#.into(),
            Self::String => r#""string""#.into(),
            Self::Weak => format!(r#"{{"type":"uuid","refTable":"T{to}","refType":"weak"}}"#),
            Self::Strong => format!(r#"{{"type":"uuid","refTable":"T{to}"}}"#),
        }
    }

    fn atom(self, random: &mut Random, world: &World) -> String {
        let n = random.below(world.domain);
        match self {
            Self::Integer if n < 3 => format!("{}", i64::MIN + n as i64),
            Self::Integer if n == 3 => format!("{}", i64::MAX),
            Self::Integer => format!("{}", n as i64 - 6),
            Self::Real if n == 0 => "-0.0".into(),
            Self::Real if n == 1 => "0.0".into(),
            Self::Real => format!("{}.5", n as i64 - 4),
            Self::Boolean => format!("{}", n.is_multiple_of(2)),
            // Some begin alike beyond what an ordered key sorts by.
            Self::String if n.is_multiple_of(4) => format!("\"{}\"", "ab".repeat(n as usize / 4)),
            Self::String => format!("\"a string of some length, number {n}\""),
            Self::Weak | Self::Strong => {
                let rows = if random.percent(70) { world.domain } else { world.rows };
                format!(r#"["uuid","{}"]"#, uuid(random.below(rows)))
            }
        }
    }
}

fn uuid(n: u64) -> String {
    format!("00000000-0000-4000-8000-{n:012x}")
}

impl Column {
    fn random(random: &mut Random) -> Self {
        let bases =
            [Base::Integer, Base::Real, Base::Boolean, Base::String, Base::Weak, Base::Strong];
        let pick = |random: &mut Random| bases[random.below(bases.len() as u64) as usize];
        let value = random.percent(25).then(|| pick(random));
        let key = match pick(random) {
            // Mandatory strong references are never satisfied by a default.
            Base::Strong if value.is_none() && random.percent(50) => Base::Weak,
            base => base,
        };
        let is_ref = |base: Base| matches!(base, Base::Weak | Base::Strong);
        let min = u64::from(!is_ref(key) && !value.is_some_and(is_ref) && random.percent(40));
        let max = if random.percent(55) { 1 } else { 5 };
        Self { key, value, min, max, to: random.below(TABLES) }
    }

    fn text(&self) -> String {
        let value = self.value.map(|value| format!(r#","value":{}"#, value.ty(self.to)));
        let (min, max) = (self.min, self.max);
        let key = self.key.ty(self.to);
        format!(
            r#"{{"type":{{"key":{key}{},"min":{min},"max":{max}}}}}"#,
            value.unwrap_or_default()
        )
    }

    /// A value of so many elements, if that many differ.
    fn value(&self, random: &mut Random, world: &World, n: u64) -> String {
        let mut elements = BTreeMap::new();
        for _ in 0..n {
            let key = self.key.atom(random, world);
            let value = self.value.map(|value| value.atom(random, world));
            // Both zeros are one element.
            elements.insert(key.replace("-0.0", "0.0"), (key, value));
        }
        let elements: Vec<String> = elements
            .into_values()
            .map(|(key, value)| value.map_or(key.clone(), |value| format!("[{key},{value}]")))
            .collect();
        let tag = if self.value.is_some() { "map" } else { "set" };
        format!(r#"["{tag}",[{}]]"#, elements.join(","))
    }

    fn any(&self, random: &mut Random, world: &World) -> String {
        let n = self.min + random.below(self.max - self.min + 1);
        self.value(random, world, n)
    }

    fn is_ordered(&self) -> bool {
        let is_sorted = matches!(self.key, Base::Integer | Base::Real | Base::String);
        is_sorted && self.value.is_none() && self.max == 1
    }

    fn is_number(&self) -> bool {
        self.is_ordered() && !matches!(self.key, Base::String)
    }

    fn clause(&self, random: &mut Random, world: &World, name: usize) -> String {
        let (function, value) = match random.below(12) {
            0..4 => ("==", self.any(random, world)),
            4..8 => {
                let n = random.below(self.max.min(3) + 1).max(self.min);
                ("includes", self.value(random, world, n))
            }
            8 => ("!=", self.any(random, world)),
            9 => ("excludes", self.any(random, world)),
            _ if self.is_number() => {
                let function = ["<", "<=", ">", ">="][random.below(4) as usize];
                (function, self.key.atom(random, world))
            }
            _ => ("==", self.any(random, world)),
        };
        format!(r#"["c{name}","{function}",{value}]"#)
    }
}

impl World {
    fn random(random: &mut Random) -> (Self, Arc<Schema>) {
        let tables: Vec<Vec<Column>> = (0..TABLES)
            .map(|_| (0..3 + random.below(3)).map(|_| Column::random(random)).collect())
            .collect();
        let domain = [3, 12, 40][random.below(3) as usize];
        let world = Self { tables, domain, rows: [12, MANY][random.below(2) as usize] };
        let tables = world.tables.iter().enumerate().map(|(number, columns)| {
            let columns = columns.iter().enumerate();
            let columns: Vec<String> =
                columns.map(|(n, column)| format!(r#""c{n}":{}"#, column.text())).collect();
            let indexes = if random.percent(20) { r#","indexes":[["c0","c1"]]"# } else { "" };
            format!(r#""T{number}":{{"isRoot":true,"columns":{{{}}}{indexes}}}"#, columns.join(","))
        });
        let tables: Vec<String> = tables.collect();
        let text = format!(r#"{{"name":"D","tables":{{{}}}}}"#, tables.join(","));
        let schema = Schema::parse_bytes(text.as_bytes()).expect(&text);
        (world, Arc::new(schema))
    }

    fn condition(&self, random: &mut Random, table: usize) -> String {
        let columns = &self.tables[table];
        let clauses: Vec<String> = (0..random.below(4))
            .map(|_| {
                let name = random.below(columns.len() as u64) as usize;
                columns[name].clause(random, self, name)
            })
            .collect();
        format!(r#""table":"T{table}","where":[{}]"#, clauses.join(","))
    }

    fn row(&self, random: &mut Random, table: usize, chance: u64) -> String {
        let columns = self.tables[table].iter().enumerate();
        let values: Vec<String> = columns
            .filter(|_| random.percent(chance))
            .map(|(name, column)| (name, column.clone()))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|(name, column)| format!(r#""c{name}":{}"#, column.any(random, self)))
            .collect();
        format!("{{{}}}", values.join(","))
    }

    fn insert(&self, random: &mut Random, table: usize, number: u64) -> String {
        let row = self.row(random, table, 80);
        format!(r#"{{"op":"insert","table":"T{table}","uuid":"{}","row":{row}}}"#, uuid(number))
    }

    fn operation(&self, random: &mut Random) -> String {
        let table = random.below(TABLES) as usize;
        let condition = self.condition(random, table);
        match random.below(12) {
            0..3 => {
                let number = random.below(self.rows + self.rows / 4);
                self.insert(random, table, number)
            }
            3 => format!(r#"{{"op":"delete",{condition}}}"#),
            4..6 => {
                let row = self.row(random, table, 30);
                format!(r#"{{"op":"update",{condition},"row":{row}}}"#)
            }
            6..8 => {
                let columns = &self.tables[table];
                let name = random.below(columns.len() as u64) as usize;
                let column = &columns[name];
                let (mutator, value) = match random.below(2) {
                    0 if column.is_number() => ("+=", "1".to_owned()),
                    0 => ("insert", column.any(random, self)),
                    _ => ("delete", column.any(random, self)),
                };
                format!(
                    r#"{{"op":"mutate",{condition},"mutations":[["c{name}","{mutator}",{value}]]}}"#
                )
            }
            8 => {
                let row = self.row(random, table, 20);
                format!(
                    r#"{{"op":"wait","timeout":0,{condition},"until":"!=","columns":["c0"],
                        "rows":[{row}]}}"#
                )
            }
            9 => format!(r#"{{"op":"select",{condition},{}}}"#, self.page(random, table)),
            _ => format!(r#"{{"op":"select",{condition}}}"#),
        }
    }

    /// Members that ask for a page of rows in order.
    fn page(&self, random: &mut Random, table: usize) -> String {
        let columns = &self.tables[table];
        let mut order: Vec<usize> = Vec::new();
        for _ in 0..1 + random.below(2) {
            let mut name = random.below(columns.len() as u64) as usize;
            if let Some(ordered) = columns.iter().position(Column::is_ordered)
                && order.is_empty()
                && random.percent(60)
            {
                name = ordered;
            }
            if !order.contains(&name) {
                order.push(name);
            }
        }
        let names: Vec<String> = order
            .iter()
            .map(|name| match random.below(3) {
                0 => format!(r#""c{name}""#),
                1 => format!(r#"["c{name}","asc"]"#),
                _ => format!(r#"["c{name}","desc"]"#),
            })
            .collect();
        let mut text = format!(r#""order_by":[{}]"#, names.join(","));
        if random.percent(80) {
            write!(text, r#","limit":{}"#, random.below(12)).expect("a string takes it");
        }
        if random.percent(40) {
            let values = order.iter().map(|name| {
                let value = columns[*name].any(random, self);
                format!(r#""c{name}":{value},"#)
            });
            let values: String = values.collect();
            let last = uuid(random.below(self.rows));
            write!(text, r#","after":{{{values}"_uuid":["uuid","{last}"]}}"#).expect("as above");
        }
        text
    }

    fn transaction(&self, random: &mut Random) -> String {
        let most = if random.percent(20) { 40 } else { 6 };
        let mut text = String::from("[");
        for at in 0..1 + random.below(most) {
            let comma = if at > 0 { "," } else { "" };
            write!(text, "{comma}{}", self.operation(random)).expect("a string takes it");
        }
        if random.percent(15) {
            text.push_str(r#",{"op":"abort"}"#);
        }
        text + "]"
    }

    /// A key that some column of the schema may have.
    fn key(&self, random: &mut Random) -> KeyName {
        let table = random.below(TABLES) as usize;
        let columns = &self.tables[table];
        let at = random.below(columns.len() as u64) as usize;
        let kind = match columns[at].max {
            1 if columns[at].is_ordered() && random.percent(60) => KeyKind::Ordered,
            1 => KeyKind::Hash,
            _ => KeyKind::Inverted,
        };
        KeyName { table: TableId(table as u16), column: ColumnId(at as u16 + 2), kind }
    }
}

struct Side {
    db: Database,
    uuids: UuidSource,
}

impl Side {
    fn new(schema: &Arc<Schema>) -> Self {
        let db = Database::new(Arc::clone(schema), 3);
        Self { db, uuids: UuidSource::new([3, 1, 4, 1]) }
    }

    fn transact(&mut self, operations: &str) -> Done {
        let array = validate(operations.as_bytes()).expect(operations);
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        match execute(&mut self.db, &operations, &mut Env::new(&mut self.uuids)) {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }
}

/// What a run met: it proves nothing if it met too little.
#[derive(Debug, Default)]
struct Met {
    by_alternate: u64,
    by_inverted: u64,
    committed: u64,
    failed: u64,
    reverted: u64,
    built_while_used: u64,
    rows_saved: u64,
    /// Pages that a key answered.
    pages: u64,
    /// Clauses whose rows keys and weak references told outside any transaction.
    told: u64,
}

/// Who runs no transaction is told of all rows that satisfy a clause, in the order of a scan.
fn try_clause(world: &World, keyed: &mut Side, random: &mut Random, met: &mut Met) {
    let at = random.below(TABLES) as usize;
    let name = random.below(world.tables[at].len() as u64) as usize;
    let text = world.tables[at][name].clause(random, world, name);
    let (table, db) = (TableId(at as u16), &keyed.db);
    let clause = validate(text.as_bytes()).expect(&text);
    let clause = Clause::parse(clause, db.schema().table(table), None).expect(&text);
    let most = [3, 40, 5_000][random.below(3) as usize];
    let (told, _) = Searches::default().candidates(db, table, &clause, most);
    let Some(told) = told else { return };
    let matching = |row: &&Row| clause.matches(row);
    let rows = db.store().table(table);
    let found = told.iter().map(|uuid| rows.get(*uuid).expect("a row that is there"));
    let expected: Vec<Uuid> = rows.iter().filter(matching).map(Row::uuid).collect();
    assert_eq!(found.filter(matching).map(Row::uuid).collect::<Vec<_>>(), expected, "{text}");
    met.told += u64::from(!expected.is_empty());
}

fn try_page(world: &World, keyed: &mut Side, plain: &mut Side, random: &mut Random, met: &mut Met) {
    let table = random.below(TABLES) as usize;
    let (condition, page) = (world.condition(random, table), world.page(random, table));
    let operations = format!(r#"[{{"op":"select",{condition},{page}}}]"#);
    let (one, other) = (keyed.transact(&operations), plain.transact(&operations));
    let text = String::from_utf8_lossy;
    assert_eq!(text(&one.reply), text(&other.reply), "{operations}");
    met.pages += u64::from(one.work.by_alternate == 1 && other.work.scans == 1);
}

fn try_one(world: &World, keyed: &mut Side, plain: &mut Side, random: &mut Random, met: &mut Met) {
    match random.below(6) {
        0 | 1 => drop(keyed.db.add_key(world.key(random))),
        2 => drop(keyed.db.drop_key(world.key(random))),
        _ => {}
    }
    met.built_while_used += u64::from(keyed.db.has_keys_to_build());
    if random.percent(60) {
        let step = [3, 50, 5_000][random.below(3) as usize];
        keyed.db.build_keys(step);
    }
    let operations = world.transaction(random);
    let (one, other) = (keyed.transact(&operations), plain.transact(&operations));
    let text = String::from_utf8_lossy;
    assert_eq!(text(&one.reply), text(&other.reply), "{operations}");
    assert_eq!(keyed.db.state_hash(), plain.db.state_hash(), "{operations}");
    assert!(keyed.db.keys_match_rows(), "{operations}");
    assert_eq!((other.work.by_alternate, other.work.by_inverted), (0, 0));
    met.by_alternate += one.work.by_alternate;
    met.by_inverted += one.work.by_inverted;
    met.rows_saved += other.work.rows_visited.saturating_sub(one.work.rows_visited);
    try_page(world, keyed, plain, random, met);
    try_clause(world, keyed, random, met);
    let (Some(one), Some(other)) = (one.delta, other.delta) else {
        met.failed += 1;
        return;
    };
    met.committed += 1;
    if random.percent(20) {
        for (side, delta) in [(&mut *keyed, &one), (&mut *plain, &other)] {
            side.db.revert(delta);
        }
        assert!(keyed.db.keys_match_rows(), "after the revert of {operations}");
        if random.percent(50) {
            for (side, delta) in [(&mut *keyed, &one), (&mut *plain, &other)] {
                side.db.apply(delta);
            }
            assert!(keyed.db.keys_match_rows(), "after {operations} was applied again");
        }
        assert_eq!(keyed.db.state_hash(), plain.db.state_hash());
        met.reverted += 1;
    }
}

#[test]
fn what_keys_find_is_what_a_scan_finds() {
    let mut met = Met::default();
    for seed in 0..SCHEMAS {
        let mut random = Random::new(seed);
        let (world, schema) = World::random(&mut random);
        let (mut keyed, mut plain) = (Side::new(&schema), Side::new(&schema));
        plain.db.has_links = false;
        if world.rows == MANY {
            for number in 0..MANY {
                let table = random.below(TABLES) as usize;
                let insert = format!("[{}]", world.insert(&mut random, table, number));
                assert_eq!(keyed.transact(&insert).reply, plain.transact(&insert).reply);
            }
        }
        for _ in 0..TRANSACTIONS {
            try_one(&world, &mut keyed, &mut plain, &mut random, &mut met);
        }
        keyed.db.build_keys(usize::MAX);
        assert!(keyed.db.keys_match_rows() && !keyed.db.has_keys_to_build(), "seed {seed}");
    }
    let Met {
        by_alternate,
        by_inverted,
        committed,
        failed,
        reverted,
        built_while_used,
        rows_saved,
        pages,
        told,
    } = met;
    let least =
        [by_alternate, by_inverted, committed, failed, reverted, built_while_used, pages, told];
    assert!(least.iter().all(|n| *n > 300), "{least:?}");
    assert!(rows_saved > 100_000, "{rows_saved}");
}
