//! Generated conversions: both servers convert generated rows to the same changed schema, and must
//! agree on whether that can be done and on what comes out.

use serde_json::{Value, json};
use weir_testkit::differential::pair::{Finding, Pair};
use weir_testkit::dump::{Dump, table_names};
use weir_testkit::generate::schema::{Atom, Column, Table};
use weir_testkit::generate::{Generator, Schema};
use weir_testkit::process::both;
use weir_testkit::rng::Rng;

/// Conversions to try.
const SEEDS: std::ops::Range<u64> = 500..548;

/// Another schema for the same database.
fn changed(schema: &Schema, rng: &mut Rng) -> Schema {
    let mut new = schema.clone();
    let other = Schema::generate(rng);
    for table in &mut new.tables {
        if rng.chance(25) && table.columns.len() > 1 {
            let at = rng.below(table.columns.len());
            let gone = table.columns.remove(at).name;
            table.indexes.retain(|index| !index.contains(&gone));
        }
        if rng.chance(25) {
            table.max_rows = rng.chance(50).then(|| rng.between(1, 40));
        }
        if rng.chance(15) {
            table.is_root = !table.is_root;
        }
        if rng.chance(15) {
            table.indexes.clear();
        }
        // A column of another schema takes the place of the one with its name, if there is one.
        if let Some(twin) = other.tables.iter().find(|twin| twin.name == table.name)
            && rng.chance(60)
            && !twin.columns.is_empty()
        {
            let column = rng.pick(&twin.columns).clone();
            table.indexes.retain(|index| !index.contains(&column.name));
            table.columns.retain(|old| old.name != column.name);
            table.columns.push(column);
        }
        retype(table, &other, rng);
    }
    new
}

/// Gives a column the type of any other.
fn retype(table: &mut Table, other: &Schema, rng: &mut Rng) {
    let twin = rng.pick(&other.tables);
    if !rng.chance(40) || table.columns.is_empty() || twin.columns.is_empty() {
        return;
    }
    let at = rng.below(table.columns.len());
    let name = table.columns[at].name.clone();
    let column = Column { name, ..rng.pick(&twin.columns).clone() };
    let is = |column: &Column, atom| column.bases().any(|base| base.atom == atom);
    let names_tables = column.bases().any(|base| base.reference.is_some());
    // COMPAT.md: a whole real becomes an integer here, and not there.
    if names_tables || is(&table.columns[at], Atom::Real) && is(&column, Atom::Integer) {
        return;
    }
    table.indexes.retain(|index| !index.contains(&column.name));
    table.columns[at] = column;
}

/// What one conversion came to: whether it was done.
fn convert(pair: &mut Pair, old: &Schema, new: &Schema) -> Result<bool, Finding> {
    let [mut a, mut b] = pair.connect()?;
    let params = json!([old.name, new.json()]);
    let replies = [a.request("convert", &params)?, b.request("convert", &params)?];
    let tag = |reply: &Value| reply["error"]["error"].as_str().map(str::to_owned);
    let [tag_a, tag_b] = [tag(&replies[0]), tag(&replies[1])];
    if tag_a != tag_b {
        let text = format!("A: {}\nB: {}\nfor {}", replies[0], replies[1], new.json());
        return Err(Finding::Difference(text));
    }
    let is_done = tag_a.is_none();
    let schema = if is_done { new } else { old };
    let [mut a, mut b] = pair.connect()?;
    let schemas = [&mut a, &mut b].map(|one| one.request("get_schema", &json!([old.name])));
    let [schema_a, schema_b] = schemas;
    if schema_a?["result"] != schema_b?["result"] {
        return Err(Finding::Difference("the schemas differ".into()));
    }
    let tables = table_names(schema);
    let rows_a = Dump::read(&mut a, &old.name, &tables)?.persistent(schema);
    let rows_b = Dump::read(&mut b, &old.name, &tables)?.renamed(&pair.known)?.persistent(schema);
    let difference = rows_a.compare(&rows_b, &mut pair.known);
    difference.map_err(|text| Finding::Difference(format!("{text}\nfor {}", new.json())))?;
    Ok(is_done)
}

#[test]
fn generated_conversions_have_the_same_effects() {
    let Some(programs) = both("generated conversions") else { return };
    let (mut done, mut refused, mut died) = (0, 0, 0);
    for seed in SEEDS {
        let mut rng = Rng::new(seed);
        let schema = Schema::generate(&mut rng);
        let new = changed(&schema, &mut rng);
        let mut pair = Pair::start(&programs, &schema).expect("two servers");
        let mut generator = Generator::new(schema.clone(), rng);
        let mut is_usable = true;
        for _ in 0..3 {
            let batch: Vec<_> = (0..10).map(|_| generator.transaction()).collect();
            // What transactions do is for another test.
            match pair.exchange(&batch).and_then(|_| pair.dump()) {
                Ok(dump) => generator.observe(dump),
                Err(_) => is_usable = false,
            }
        }
        if !is_usable {
            continue;
        }
        match convert(&mut pair, &schema, &new).map_err(|finding| pair.excuse(finding)) {
            Ok(true) => done += 1,
            Ok(false) => refused += 1,
            Err(Finding::ReferenceBroken(_)) => {}
            // COMPAT.md: conversions that end 3.1.0.
            Err(_) if !pair.reference_is_alive() => died += 1,
            Err(finding) => panic!("seed {seed}: {finding:?}\n{}", pair.condition()),
        }
    }
    println!("{done} done, {refused} refused, the reference died {died} times");
    assert!(done >= 15 && refused >= 5 && died < 10, "{done} done, {refused} refused");
}
