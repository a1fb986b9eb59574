//! Generated schemas: every atomic type in every shape, references with cycles, constraints.

use serde_json::{Map, Value, json};

use crate::generate::value;
use crate::rng::Rng;

/// The most elements of a column with `"max": "unlimited"`.
pub const UNLIMITED: usize = usize::MAX;

/// Tables a schema has at least and at most.
const TABLES: (usize, usize) = (3, 6);

/// Columns a table has at least and at most, references not counted.
const COLUMNS: (usize, usize) = (4, 9);

/// The five atomic types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atom {
    /// 64-bit signed integers.
    Integer,
    /// A finite double.
    Real,
    /// `true` or `false`.
    Boolean,
    /// UTF-8 text.
    String,
    /// UUIDs: references to rows, or bare ones.
    Uuid,
}

/// All five atomic types.
pub const ATOMS: [Atom; 5] = [Atom::Integer, Atom::Real, Atom::Boolean, Atom::String, Atom::Uuid];

impl Atom {
    /// The type's name in a schema.
    pub fn word(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }
}

/// How many atoms a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A column of exactly one atom.
    Scalar,
    /// A column of one atom or none.
    Optional,
    /// A column of a set that may have more than one atom.
    Set,
    /// A column of a map.
    Map,
}

/// All shapes.
pub const SHAPES: [Shape; 4] = [Shape::Scalar, Shape::Optional, Shape::Set, Shape::Map];

impl Shape {
    /// The shape's name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Optional => "optional",
            Self::Set => "set",
            Self::Map => "map",
        }
    }
}

/// A key or value type with its constraints.
#[derive(Clone, Debug)]
pub struct Base {
    /// The atomic type.
    pub atom: Atom,
    /// The table referred to, and whether strongly.
    pub reference: Option<(String, bool)>,
    /// `enum`, `minInteger` and so on, as in the schema.
    pub constraints: Map<String, Value>,
}

impl Base {
    /// An atomic type and nothing else.
    pub fn plain(atom: Atom) -> Self {
        Self { atom, reference: None, constraints: Map::new() }
    }

    fn parse(json: &Value) -> Self {
        let mut constraints = json.as_object().cloned().unwrap_or_default();
        let word = json.as_str().or(json["type"].as_str()).unwrap_or_default();
        let atom = ATOMS.into_iter().find(|atom| atom.word() == word).unwrap_or(Atom::Integer);
        let strong = json["refType"] != "weak";
        let table = json["refTable"].as_str().map(str::to_owned);
        constraints.retain(|name, _| !["type", "refTable", "refType"].contains(&name.as_str()));
        Self { atom, reference: table.map(|table| (table, strong)), constraints }
    }

    /// The allowed values, where they are listed.
    pub fn allowed(&self) -> Option<&Vec<Value>> {
        self.constraints.get("enum")?[1].as_array()
    }

    fn json(&self) -> Value {
        let mut members = self.constraints.clone();
        members.insert("type".into(), json!(self.atom.word()));
        if let Some((table, strong)) = &self.reference {
            members.insert("refTable".into(), json!(table));
            if !strong {
                members.insert("refType".into(), json!("weak"));
            }
        }
        if members.len() == 1 { json!(self.atom.word()) } else { Value::Object(members) }
    }
}

/// A generated column.
#[derive(Clone, Debug)]
pub struct Column {
    /// The column's name.
    pub name: String,
    /// What the column holds, or the keys of a map.
    pub key: Base,
    /// The values of a map; `None` for a column that holds no map.
    pub value: Option<Base>,
    /// The fewest elements: 0 or 1.
    pub min: usize,
    /// The most elements: 1 and more, or [`UNLIMITED`].
    pub max: usize,
    /// Whether the column may change after insertion.
    pub mutable: bool,
    /// Whether the column is not written to the file.
    pub ephemeral: bool,
}

impl Column {
    fn parse(name: &str, json: &Value) -> Self {
        let kind = &json["type"];
        let whole = if kind.get("key").is_some() { kind.clone() } else { json!({"key": kind}) };
        let count = |value: &Value| match value {
            Value::String(_) => UNLIMITED,
            other => other.as_u64().unwrap_or(1) as usize,
        };
        Self {
            name: name.to_owned(),
            key: Base::parse(&whole["key"]),
            value: whole.get("value").map(Base::parse),
            min: count(&whole["min"]),
            max: count(&whole["max"]),
            mutable: json["mutable"] != false,
            ephemeral: json["ephemeral"] == true,
        }
    }

    /// How many atoms the column holds.
    pub fn shape(&self) -> Shape {
        match (&self.value, self.min, self.max) {
            (Some(_), _, _) => Shape::Map,
            (None, 1, 1) => Shape::Scalar,
            (None, 0, 1) => Shape::Optional,
            _ => Shape::Set,
        }
    }

    /// "integer set" and the like, for the reach of a run.
    pub fn kind(&self) -> String {
        format!("{} {}", self.key.atom.word(), self.shape().word())
    }

    /// The base types: one, or two in a map.
    pub fn bases(&self) -> impl Iterator<Item = &Base> {
        std::iter::once(&self.key).chain(&self.value)
    }

    fn json(&self) -> Value {
        let key = self.key.json();
        let mut column = Map::new();
        let kind = if (self.shape(), key.is_string()) == (Shape::Scalar, true) {
            key
        } else {
            let mut members = Map::from_iter([("key".to_owned(), key)]);
            if let Some(value) = &self.value {
                members.insert("value".into(), value.json());
            }
            if self.min != 1 {
                members.insert("min".into(), json!(self.min));
            }
            if self.max != 1 {
                let max = if self.max == UNLIMITED { json!("unlimited") } else { json!(self.max) };
                members.insert("max".into(), max);
            }
            Value::Object(members)
        };
        column.insert("type".into(), kind);
        if !self.mutable {
            column.insert("mutable".into(), json!(false));
        }
        if self.ephemeral {
            column.insert("ephemeral".into(), json!(true));
        }
        Value::Object(column)
    }
}

/// A generated table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's name.
    pub name: String,
    /// The table's columns.
    pub columns: Vec<Column>,
    /// Whether rows stay without being referred to.
    pub is_root: bool,
    /// The most rows that the table may have.
    pub max_rows: Option<usize>,
    /// Unique indexes, by column name.
    pub indexes: Vec<Vec<String>>,
}

impl Table {
    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    fn json(&self, say_root: bool) -> Value {
        let columns: Map<String, Value> =
            self.columns.iter().map(|column| (column.name.clone(), column.json())).collect();
        let mut table = Map::from_iter([("columns".to_owned(), Value::Object(columns))]);
        if self.is_root && say_root {
            table.insert("isRoot".into(), json!(true));
        }
        if let Some(limit) = self.max_rows {
            table.insert("maxRows".into(), json!(limit));
        }
        if !self.indexes.is_empty() {
            table.insert("indexes".into(), json!(self.indexes));
        }
        Value::Object(table)
    }
}

/// A generated database schema.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The database's tables.
    pub tables: Vec<Table>,
    /// Whether columns have limits of their number of elements. The installed reference, 3.1.0, does
    /// not read all differences of such columns back: it refuses one with more elements than the
    /// column may have, and takes one from a default that is not empty for the whole value.
    pub limited: bool,
    all_root: bool,
}

impl Schema {
    /// The schema as a server reads it.
    pub fn json(&self) -> Value {
        let tables: Map<String, Value> = self
            .tables
            .iter()
            .map(|table| (table.name.clone(), table.json(!self.all_root)))
            .collect();
        json!({"name": self.name, "version": "1.2.3", "cksum": "1 2", "tables": tables})
    }

    /// Reads back what [`Self::json`] wrote.
    pub fn parse(json: &Value) -> Self {
        let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let mut tables = vec![];
        let mut all_root = true;
        for (name, table) in members(&json["tables"]) {
            let columns = members(&table["columns"]);
            let columns = columns.iter().map(|(name, column)| Column::parse(name, column));
            let is_root = table["isRoot"] == true;
            all_root &= !is_root;
            let max_rows = table["maxRows"].as_u64().map(|limit| limit as usize);
            let indexes = serde_json::from_value(table["indexes"].clone()).unwrap_or_default();
            tables.push(Table { name, columns: columns.collect(), is_root, max_rows, indexes });
        }
        tables.iter_mut().for_each(|table| table.is_root |= all_root);
        let name = json["name"].as_str().unwrap_or_default().to_owned();
        Self { name, tables, limited: true, all_root }
    }

    /// The number of columns in all tables.
    pub fn columns(&self) -> usize {
        self.tables.iter().map(|table| table.columns.len()).sum()
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// A schema drawn from `rng`.
    pub fn generate(rng: &mut Rng) -> Self {
        let count = rng.between(TABLES.0, TABLES.1);
        let names: Vec<String> = (0..count).map(|i| format!("T{i}")).collect();
        let all_root = rng.chance(25);
        let limited = rng.chance(50);
        let mut tables = vec![];
        for (i, name) in names.iter().enumerate() {
            let mut columns = vec![];
            for number in 0..rng.between(COLUMNS.0, COLUMNS.1) {
                columns.push(plain_column(rng, number));
            }
            for number in 0..rng.between(usize::from(count > 4), 3) {
                columns.push(reference_column(rng, number, &names));
            }
            if !limited {
                for column in columns.iter_mut().filter(|column| column.max > 1) {
                    (column.min, column.max) = (0, UNLIMITED);
                }
            }
            let is_root = all_root || i == 0 || rng.chance(50);
            let max_rows = rng.chance(30).then(|| rng.between(1, 6));
            let indexes = indexes(rng, &columns);
            tables.push(Table { name: name.clone(), columns, is_root, max_rows, indexes });
        }
        hold_all(rng, &mut tables);
        Self { name: "Generated".into(), tables, limited, all_root }
    }
}

/// Gives every table whose rows do not live by themselves a column elsewhere that can hold them.
fn hold_all(rng: &mut Rng, tables: &mut [Table]) {
    for i in 0..tables.len() {
        if tables[i].is_root {
            continue;
        }
        let mut key = Base::plain(Atom::Uuid);
        key.reference = Some((tables[i].name.clone(), true));
        let name = format!("strong_of_{}", tables[i].name);
        let max = *rng.pick(&[1, UNLIMITED]);
        let holder = rng.below(tables.len());
        let column =
            Column { name, key, value: None, min: 0, max, mutable: true, ephemeral: false };
        tables[holder].columns.push(column);
    }
}

fn plain_column(rng: &mut Rng, number: usize) -> Column {
    let (atom, shape) = (*rng.pick(&ATOMS), *rng.pick(&SHAPES));
    let key = base(rng, atom);
    let value = (shape == Shape::Map).then(|| {
        let atom = *rng.pick(&ATOMS);
        base(rng, atom)
    });
    let (min, max) = match shape {
        Shape::Scalar => (1, 1),
        Shape::Optional => (0, 1),
        Shape::Set => (rng.weighted(&[80, 20]), *rng.pick(&[2, 3, 4, UNLIMITED, UNLIMITED])),
        Shape::Map => (rng.weighted(&[85, 15]), *rng.pick(&[1, 2, 3, UNLIMITED, UNLIMITED])),
    };
    Column {
        name: format!("{}_{}_{number}", &atom.word()[..3], shape.word()),
        key,
        value,
        min,
        max,
        mutable: !rng.chance(12),
        ephemeral: rng.chance(12),
    }
}

fn base(rng: &mut Rng, atom: Atom) -> Base {
    let mut base = Base::plain(atom);
    if rng.chance(75) {
        return base;
    }
    let constraints = &mut base.constraints;
    match (atom, rng.chance(40)) {
        (Atom::Boolean | Atom::Uuid, _) => {}
        (_, true) => {
            let mut allowed: Vec<Value> = (0..4).map(|_| value::plain_atom(rng, atom)).collect();
            allowed.extend(value::default_atom(atom).filter(|_| rng.chance(80)));
            allowed.sort_by_key(value::identity);
            allowed.dedup_by_key(|atom| value::identity(atom));
            constraints.insert("enum".into(), json!(["set", allowed]));
        }
        (Atom::String, false) => {
            let low = rng.weighted(&[60, 30, 10]);
            if low > 0 || rng.chance(50) {
                constraints.insert("minLength".into(), json!(low));
            }
            constraints.insert("maxLength".into(), json!(rng.between(2, 6)));
        }
        (_, false) => {
            let suffix = if atom == Atom::Integer { "Integer" } else { "Real" };
            let low = *rng.pick(&[-2, 0, 0, 1]);
            let which = rng.below(3);
            if which != 0 {
                constraints.insert(format!("min{suffix}"), json!(low));
            }
            if which != 1 {
                constraints.insert(format!("max{suffix}"), json!(low + 1 + rng.below(6) as i64));
            }
        }
    }
    base
}

fn reference_column(rng: &mut Rng, number: usize, tables: &[String]) -> Column {
    let strong = rng.chance(55);
    let mut target = Base::plain(Atom::Uuid);
    target.reference = Some((rng.pick(tables).clone(), strong));
    let word = if strong { "strong" } else { "weak" };
    let (mut key, mut value) = (target, None);
    let (min, max) = match rng.weighted(&[10, 25, 40, 25]) {
        0 => (1, 1),
        1 => (0, 1),
        2 => (rng.weighted(&[85, 15]), *rng.pick(&[2, 3, UNLIMITED, UNLIMITED])),
        _ => {
            // References may be keys, values or both.
            let other = match rng.below(3) {
                0 if strong => key.clone(),
                _ => Base::plain(*rng.pick(&ATOMS)),
            };
            value = Some(other);
            if rng.chance(50) {
                std::mem::swap(&mut key, value.get_or_insert_with(|| Base::plain(Atom::Uuid)));
            }
            (rng.weighted(&[90, 10]), *rng.pick(&[1, 3, UNLIMITED]))
        }
    };
    let name = format!("{word}_{number}");
    // After a restart the column would refer to the row of the zero UUID.
    let ephemeral = min == 0 && rng.chance(12);
    Column { name, key, value, min, max, mutable: !rng.chance(8), ephemeral }
}

fn indexes(rng: &mut Rng, columns: &[Column]) -> Vec<Vec<String>> {
    // A strong reference to a non-root table is made persistent by the server; leave those out.
    let persistent: Vec<_> = columns.iter().filter(|column| !column.ephemeral).collect();
    let mut indexes = vec![];
    if persistent.is_empty() {
        return indexes;
    }
    for _ in 0..rng.weighted(&[50, 35, 15]) {
        let mut names: Vec<String> = vec![];
        for _ in 0..rng.weighted(&[0, 55, 35, 10]) {
            let name = &rng.pick(&persistent).name;
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        indexes.push(names);
    }
    indexes
}
