//! Pages of rows in order, as a client asks for them: what is in them, how many rows are looked at,
//! and what is wrong with other requests.

use std::sync::Arc;

use weir_data::{Schema, UuidSource};
use weir_engine::{Database, Done, Env, KeyBudget, KeyKind, Outcome, convert, execute};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{
  "Item":{"isRoot":true,"indexes":[["name"]],"columns":{
    "name":{"type":"string"},
    "owner":{"type":"string"},
    "size":{"type":"integer"},
    "weight":{"type":{"key":"real","min":0,"max":1}},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}}}}}}"#;

const ROWS: usize = 4_000;
/// Rows that share an owner and a weight.
const SHARE: usize = 10;

struct Scene {
    db: Database,
    uuids: UuidSource,
}

impl Scene {
    /// Rows in an order that none of the columns has.
    fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA).expect("the schema");
        let db = Database::new(Arc::new(schema), 3);
        let mut scene = Self { db, uuids: UuidSource::new([3, 1, 4, 1]) };
        let rows = (0..ROWS).map(|at| {
            let n = at * 1_237 % ROWS;
            let share = n / SHARE;
            let weight =
                if n.is_multiple_of(100) { "[\"set\",[]]".into() } else { format!("{share}.5") };
            format!(
                r#"{{"op":"insert","table":"Item","row":{{"name":"item {n:06}",
                    "owner":"the owner of things {share:03}","size":{n},"weight":{weight}}}}}"#
            )
        });
        scene.transact(&rows.collect::<Vec<_>>().join(","));
        scene
    }

    fn transact(&mut self, operations: &str) -> Done {
        let done = self.run(operations);
        let reply = String::from_utf8_lossy(&done.reply);
        assert!(!reply.contains("\"error\""), "{reply}");
        done
    }

    fn run(&mut self, operations: &str) -> Done {
        let text = format!("[{operations}]");
        let array = validate(text.as_bytes()).expect("operations");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        match execute(&mut self.db, &operations, &mut Env::new(&mut self.uuids)) {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        }
    }

    fn have_key(&mut self, column: &str, kind: KeyKind) {
        let schema = self.db.schema();
        let table = schema.table_id("Item").expect("the schema has it");
        let column = schema.table(table).column_id(column).expect("the schema has it");
        let key = self.db.key_for(table, column, kind == KeyKind::Ordered);
        assert_eq!(key.kind, kind);
        self.db.add_key(key).expect("the column can have it");
        self.db.build_keys(usize::MAX);
    }

    /// The pages of a walk through all rows, and the rows looked at for the page that needed most.
    fn pages(&mut self, condition: &str, order: &str, limit: usize) -> (Vec<Vec<String>>, u64) {
        let (mut pages, mut most, mut after) = (Vec::new(), 0, String::new());
        loop {
            let done = self.transact(&format!(
                r#"{{"op":"select","table":"Item","where":[{condition}],"order_by":{order},
                    "limit":{limit}{after}}}"#
            ));
            let rows = rows(&done);
            let Some(last) = rows.last() else { return (pages, most) };
            most = most.max(done.work.rows_visited);
            after = format!(r#","after":{last}"#);
            pages.push(rows);
        }
    }
}

/// The rows of the first result, each as text.
fn rows(done: &Done) -> Vec<String> {
    let text = std::str::from_utf8(&done.reply).expect("JSON");
    let array = validate(text.as_bytes()).expect("JSON");
    let result = array.elements().and_then(|mut results| results.next()).expect("a result");
    let members = result.members().expect("an object");
    let rows = members.filter(|(key, _)| **key == *b"rows").map(|(_, rows)| rows);
    let rows = rows.flat_map(|rows| rows.elements().into_iter().flatten());
    rows.map(|row| String::from_utf8_lossy(row.as_bytes()).into_owned()).collect()
}

fn names(rows: &[String]) -> Vec<String> {
    let begin = "\"name\":\"item ";
    let name = |row: &String| row.split(begin).nth(1).map(|rest| rest[..6].to_owned());
    rows.iter().filter_map(name).collect()
}

#[test]
fn pages_have_every_row_once_and_in_order() {
    for (key, order) in [
        ("name", r#"["name"]"#),
        ("size", r#"[["size","desc"]]"#),
        ("owner", r#"["owner"]"#),
        ("weight", r#"[["weight","asc"],["size","desc"]]"#),
    ] {
        let mut scene = Scene::new();
        let all = format!(r#"{{"op":"select","table":"Item","where":[],"order_by":{order}}}"#);
        let sorted = rows(&scene.transact(&all));
        assert_eq!(sorted.len(), ROWS);
        let (scanned, looked_at) = scene.pages("", order, 150);
        assert_eq!((scanned.concat() == sorted, looked_at), (true, ROWS as u64), "{order}");
        scene.have_key(key, KeyKind::Ordered);
        let (walked, looked_at) = scene.pages("", order, 150);
        assert_eq!(walked, scanned, "{order}");
        // What a page begins and ends with may share its number with others.
        let most = match key {
            "owner" => ROWS + ROWS / 8 + 8,
            // Reals that are told alike have an order of their own in the key.
            "weight" => ROWS,
            _ => 150 + 2 * 50,
        };
        assert!(looked_at <= most as u64, "{order}: {looked_at}");
        let expected: Vec<String> = (0..ROWS).map(|n| format!("{n:06}")).collect();
        match key {
            "name" => assert_eq!(names(&sorted), expected),
            "size" => assert!(names(&sorted).iter().eq(expected.iter().rev())),
            "weight" => assert_eq!(names(&sorted)[..3], ["003900", "003800", "003700"]),
            _ => {}
        }
    }
}

/// Clients are told 15 digits of a real, and ask for what comes behind that.
#[test]
fn pages_have_every_row_once_whose_reals_are_told_alike() {
    let mut scene = Scene::new();
    scene.transact(r#"{"op":"delete","table":"Item","where":[]}"#);
    let weights = [
        "0.30000000000000004",
        "0.3",
        "0.33333333333333331",
        "0.66666666666666663",
        "0.66666666666666674",
        "3333333333333333.5",
        "-0.30000000000000004",
        "0.3",
        "9007199254740992.0",
        "0.0",
    ];
    let insert = |(n, weight): (usize, &&str)| {
        let row = format!(r#"{{"name":"item {n:06}","weight":{weight}}}"#);
        format!(r#"{{"op":"insert","table":"Item","row":{row}}}"#)
    };
    scene.transact(&weights.iter().enumerate().map(insert).collect::<Vec<_>>().join(","));
    for with_key in [false, true] {
        if with_key {
            scene.have_key("weight", KeyKind::Ordered);
        }
        for order in [r#"["weight"]"#, r#"[["weight","desc"]]"#, r#"["owner","weight"]"#] {
            let all = format!(r#"{{"op":"select","table":"Item","where":[],"order_by":{order}}}"#);
            let sorted = rows(&scene.transact(&all));
            let (pages, _) = scene.pages("", order, 1);
            assert_eq!(pages.len(), weights.len(), "{order}");
            assert_eq!(pages.concat(), sorted, "{order}");
        }
    }
}

#[test]
fn a_page_of_ten_looks_at_ten_rows() {
    let mut scene = Scene::new();
    scene.have_key("size", KeyKind::Ordered);
    for (condition, begin, order) in [
        ("", "", r#"["size"]"#),
        ("", "", r#"[["size","desc"]]"#),
        (r#"["size",">=",1000]"#, "", r#"["size"]"#),
        (r#"["size","<",1000]"#, "", r#"[["size","desc"]]"#),
        (
            "",
            r#","after":{"size":77,"_uuid":["uuid","00000000-0000-0000-0000-000000000000"]}"#,
            r#"["size"]"#,
        ),
    ] {
        let done = scene.transact(&format!(
            r#"{{"op":"select","table":"Item","where":[{condition}],"order_by":{order},
                "limit":10{begin}}}"#
        ));
        assert_eq!((rows(&done).len(), done.work.scans), (10, 0), "{condition} {order}");
        assert!(done.work.rows_visited <= 11, "{condition} {order}: {:?}", done.work);
    }
    // Owners begin alike beyond what a key sorts by: little worse than a look at all rows.
    scene.have_key("owner", KeyKind::Ordered);
    let page =
        r#"{"op":"select","table":"Item","where":[],"order_by":["owner","size"],"limit":10}"#;
    let done = scene.transact(page);
    assert_eq!(names(&rows(&done)), (0..10).map(|n| format!("{n:06}")).collect::<Vec<_>>());
    assert!(done.work.rows_visited <= (ROWS + ROWS / 8 + 8) as u64, "{:?}", done.work);
}

#[test]
fn a_condition_that_few_rows_satisfy_decides_how_they_are_found() {
    let mut scene = Scene::new();
    scene.have_key("size", KeyKind::Ordered);
    let page = |condition: &str| {
        format!(
            r#"{{"op":"select","table":"Item","where":[{condition}],"order_by":["size"],
                "limit":20}}"#
        )
    };
    let by_name = scene.transact(&page(r#"["name","==","item 000077"]"#));
    assert_eq!((by_name.work.by_index, by_name.work.rows_visited), (1, 1));
    scene.have_key("owner", KeyKind::Hash);
    let by_owner = scene.transact(&page(r#"["owner","==","the owner of things 399"]"#));
    assert_eq!((rows(&by_owner).len(), by_owner.work.rows_visited), (SHARE, SHARE as u64));
    // Nothing satisfies it: the walk gives up in time.
    let nothing = scene.transact(&page(r#"["tags","includes","no such tag"]"#));
    assert_eq!((rows(&nothing).len(), nothing.work.scans), (0, 1));
    assert!(nothing.work.rows_visited <= (ROWS + ROWS / 8 + 9) as u64, "{:?}", nothing.work);
}

#[test]
fn entries_that_are_walked_to_find_out_how_rows_are_found_are_paid_for() {
    let mut scene = Scene::new();
    scene.transact(r#"{"op":"update","table":"Item","where":[],"row":{"owner":"all"}}"#);
    scene.have_key("size", KeyKind::Ordered);
    let page = r#"{"op":"select","table":"Item","where":[["owner","==","all"]],"limit":400,
        "order_by":["size"],
        "after":{"size":4000,"_uuid":["uuid","00000000-0000-0000-0000-000000000000"]}}"#;
    let plain = scene.transact(page);
    assert_eq!((rows(&plain).len(), plain.work.rows_visited), (0, 0));
    scene.have_key("owner", KeyKind::Hash);
    let walked = scene.transact(page);
    assert_eq!((&walked.reply, walked.work.rows_visited), (&plain.reply, 0));
    assert_eq!(walked.work.entries_walked, 401);
    assert_eq!(walked.cost, plain.cost + 100);
}

#[test]
fn a_row_is_taken_as_it_came_whatever_constraints_the_other_columns_have() {
    let mut scene = Scene::new();
    // Nobody checks the default value of a new column.
    let kind = r#""kind":{"type":{"key":{"type":"string","enum":["set",["a","b"]]}}},
        "level":{"type":{"key":{"type":"integer","minInteger":1}}}"#;
    let text = std::str::from_utf8(SCHEMA).expect("text");
    let schema = text.replace(r#""owner":{"#, &format!(r#"{kind},"owner":{{"#));
    let schema = Arc::new(Schema::parse_bytes(schema.as_bytes()).expect("the schema"));
    let converted = convert(&scene.db.snapshot(), schema, &mut scene.uuids, 3);
    scene.db = converted.expect("all values are of the new types").database;
    for order in [r#"["size"]"#, r#"["kind",["level","desc"],"size"]"#] {
        let (pages, _) = scene.pages("", order, 1_500);
        let all = format!(r#"{{"op":"select","table":"Item","where":[],"order_by":{order}}}"#);
        assert_eq!(pages.len(), 3);
        assert_eq!(pages.concat(), rows(&scene.transact(&all)));
    }
    // Nor does it matter what columns have that do not matter.
    let odd = r#"{"op":"select","table":"Item","where":[],"order_by":["size"],"limit":1,
        "after":{"size":7,"owner":7,"_uuid":["uuid","ffffffff-ffff-ffff-ffff-ffffffffffff"]}}"#;
    assert_eq!(names(&rows(&scene.transact(odd))), ["000008"]);
}

#[test]
fn a_page_sees_what_its_own_transaction_has_changed() {
    let mut scene = Scene::new();
    scene.have_key("size", KeyKind::Ordered);
    let done = scene.transact(
        r#"{"op":"select","table":"Item","where":[],"order_by":["size"],"limit":0},
           {"op":"update","table":"Item","where":[["size","==",2]],"row":{"size":-7}},
           {"op":"insert","table":"Item","row":{"name":"new","size":-8}},
           {"op":"delete","table":"Item","where":[["size","==",0]]},
           {"op":"select","table":"Item","where":[],"order_by":["size"],"limit":4,
            "columns":["size"]}"#,
    );
    let reply = String::from_utf8_lossy(&done.reply);
    let page = r#"{"rows":[{"size":-8},{"size":-7},{"size":1},{"size":3}]}"#;
    assert!(reply.starts_with(r#"[{"rows":[]},"#) && reply.contains(page), "{reply}");
    assert_eq!(done.work.scans, 0);
}

#[test]
fn rows_of_a_page_that_look_alike_are_all_there() {
    let mut scene = Scene::new();
    let select = |more: &str| {
        format!(
            r#"{{"op":"select","table":"Item","where":[["size","<",25]],
                "columns":["owner"]{more}}}"#
        )
    };
    assert_eq!(rows(&scene.transact(&select(""))).len(), 3);
    assert_eq!(rows(&scene.transact(&select(r#","order_by":["owner"]"#))).len(), 25);
}

#[test]
fn what_is_wrong_with_a_page_is_said() {
    let mut scene = Scene::new();
    for (members, complaint) in [
        (r#""limit":3"#, "Required 'order_by' member is missing."),
        (r#""after":{}"#, "Required 'order_by' member is missing."),
        (r#""order_by":["size"],"sort":["size"]"#, "'order_by' and 'sort' exclude each other."),
        (r#""order_by":"size""#, "Type mismatch for member 'order_by'."),
        (r#""order_by":["size"],"limit":1.5"#, "Type mismatch for member 'limit'."),
        (r#""order_by":["size"],"limit":-1"#, r#"\"limit\" must not be negative"#),
        (r#""order_by":["nothing"]"#, "nothing is not a valid column name"),
        (r#""order_by":["size","size"]"#, "array of distinct columns expected"),
        (r#""order_by":[["size","up"]]"#, "array of distinct columns expected"),
        (r#""order_by":[["size","asc",1]]"#, "array of distinct columns expected"),
        (r#""order_by":[[]]"#, "array of distinct columns expected"),
        (r#""order_by":[7]"#, "array of distinct columns expected"),
        (r#""order_by":["size"],"after":{"size":1}"#, "must have a value of column _uuid"),
        (r#""order_by":["size"],"after":{"nothing":1}"#, "No column nothing in table Item."),
        (r#""order_by":["size"],"after":{"size":"x"}"#, "expected integer"),
    ] {
        let done = scene.run(&format!(r#"{{"op":"select","table":"Item","where":[],{members}}}"#));
        let reply = String::from_utf8_lossy(&done.reply);
        let tag = if members.contains("\"nothing\":1") { "unknown column" } else { "syntax error" };
        assert!(reply.contains(&format!("\"error\":\"{tag}\"")), "{members}: {reply}");
        assert!(reply.contains(complaint), "{members}: {reply}");
    }
    // Only a `select` has them.
    let done = scene.run(r#"{"op":"delete","table":"Item","where":[],"limit":3}"#);
    let reply = String::from_utf8_lossy(&done.reply);
    assert!(reply.contains("Member 'limit' is present but not allowed here."), "{reply}");
}

#[test]
fn a_big_sort_costs_more_than_its_rows() {
    let mut scene = Scene::new();
    let select = r#"{"op":"select","table":"Item","where":[],"columns":["size"]"#;
    let plain = scene.transact(&format!(r#"{select},"sort":["_uuid"]}}"#)).cost;
    let sorted = scene.transact(&format!(r#"{select},"order_by":["name"]}}"#)).cost;
    assert!(sorted >= plain + 10 * ROWS as u64, "{plain} {sorted}");
}

#[test]
fn the_engine_builds_a_key_for_an_order_that_is_asked_for_again_and_again() {
    let mut scene = Scene::new();
    let page = r#"{"op":"select","table":"Item","where":[],"order_by":["size"],"limit":10}"#;
    let budget = KeyBudget { bytes: 1 << 20, step: 10_000 };
    for _ in 0..40 {
        scene.transact(page);
        scene.db.tend_keys(budget);
    }
    let keys: Vec<KeyKind> = scene.db.keys().map(|state| state.key.kind).collect();
    assert_eq!(keys, [KeyKind::Ordered]);
    let done = scene.transact(page);
    assert_eq!((rows(&done).len(), done.work.rows_visited, done.work.scans), (10, 10, 0));
}

#[test]
fn what_is_explained_says_how_rows_are_found_and_changes_nothing() {
    let mut scene = Scene::new();
    scene.have_key("size", KeyKind::Ordered);
    let before = scene.db.state_hash();
    let text = r#"[
        {"op":"select","table":"Item","where":[["name","==","item 000007"]]},
        {"op":"select","table":"Item","where":[["size","<",7]]},
        {"op":"select","table":"Item","where":[["tags","includes","x"]]},
        {"op":"select","table":"Item","where":[],"order_by":["size"],"limit":5},
        {"op":"insert","table":"Item","row":{"name":"new"}},
        {"op":"delete","table":"Item","where":[["owner","==","the owner of things 007"]]},
        {"op":"wait","table":"Item","where":[["_uuid","==",["uuid","00000000-0000-4000-8000-000000000000"]]],"until":"==",
         "rows":[{"size":1}],"columns":["size"]},
        {"op":"comment","comment":"not reached"}]"#;
    let array = validate(text.as_bytes()).expect("operations");
    let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
    let outcome = weir_engine::explain(&mut scene.db, &operations, &mut Env::new(&mut scene.uuids));
    let Outcome::Done(done) = outcome else { panic!("{outcome:?}") };
    let reply = String::from_utf8_lossy(&done.reply).into_owned();
    let item = r#""table":"Item","plan""#;
    let plans = [
        format!(r#"{{"op":"select",{item}:"primary","columns":["name"],"looked_at":1,"found":1}}"#),
        format!(
            r#"{{"op":"select",{item}:"alternate","columns":["size"],"kind":"ordered","looked_at":7,"found":7}}"#
        ),
        format!(
            r#"{{"op":"select",{item}:"linear","columns":[],"looked_at":4000,"found":0,"key":{{"column":"tags","kind":"inverted"}}}}"#
        ),
        format!(
            r#"{{"op":"select",{item}:"alternate","columns":["size"],"kind":"ordered","looked_at":5,"found":5}}"#
        ),
        r#"{"op":"insert"}"#.to_owned(),
        format!(
            r#"{{"op":"delete",{item}:"linear","columns":[],"looked_at":4001,"found":10,"key":{{"column":"owner","kind":"hash"}}}}"#
        ),
    ];
    let wait =
        format!(r#"{{"op":"wait",{item}:"uuid","columns":["_uuid"],"looked_at":0,"found":0}}"#);
    assert_eq!(reply, format!("[{},{wait},null]", plans.join(",")));
    assert_eq!(scene.db.state_hash(), before);
    assert_eq!(scene.db.keys().count(), 1);
}
