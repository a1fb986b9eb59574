//! Keys as the owner of a database has them: how many rows a search visits with them, how they are
//! added while commits go on, and what the engine decides by itself.

use std::sync::Arc;

use weir_data::condition::Clause;
use weir_data::{Row, Schema, TableId, Uuid, UuidSource};
use weir_engine::keys::{KeyError, Origin, Why};
use weir_engine::{
    Database, Done, Env, KeyBudget, KeyEvent, KeyKind, KeyName, Outcome, Searches, execute, read,
};
use weir_json::{Text, validate};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{
  "Item":{"isRoot":true,"indexes":[["name"]],"columns":{
    "name":{"type":"string"},
    "owner":{"type":"string"},
    "parity":{"type":"boolean"},
    "size":{"type":"integer"},
    "weight":{"type":{"key":"real","min":0,"max":1}},
    "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
    "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
    "group":{"type":{"key":{"type":"uuid","refTable":"Group","refType":"weak"},"min":0,"max":1}},
    "parts":{"type":{"key":{"type":"uuid","refTable":"Group"},"min":0,"max":"unlimited"}}}},
  "Group":{"isRoot":true,"columns":{"number":{"type":"integer"}}}}}"#;

const ROWS: usize = 4_000;
/// Rows that share an owner, a tag, an id or a group.
const SHARE: usize = 10;

struct Scene {
    db: Database,
    uuids: UuidSource,
}

fn group(n: usize) -> String {
    format!(r#"["uuid","00000000-0000-4000-8000-{n:012x}"]"#)
}

impl Scene {
    fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA).expect("the schema");
        let db = Database::new(Arc::new(schema), 3);
        let mut scene = Self { db, uuids: UuidSource::new([3, 1, 4, 1]) };
        let groups: Vec<String> = (0..ROWS / SHARE)
            .map(|n| {
                let uuid = format!("00000000-0000-4000-8000-{n:012x}");
                format!(
                    r#"{{"op":"insert","table":"Group","uuid":"{uuid}","row":{{"number":{n}}}}}"#
                )
            })
            .collect();
        scene.transact(&groups.join(","));
        let rows: Vec<String> = (0..ROWS).map(|n| item(n, n / SHARE)).collect();
        scene.transact(&rows.join(","));
        scene
    }

    fn run(&mut self, operations: &str, budget: u64) -> Outcome {
        let text = format!("[{operations}]");
        let array = validate(text.as_bytes()).expect("operations");
        let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
        execute(&mut self.db, &operations, &mut Env { budget, ..Env::new(&mut self.uuids) })
    }

    fn transact(&mut self, operations: &str) -> Done {
        let done = match self.run(operations, u64::MAX) {
            Outcome::Done(done) => done,
            other => panic!("{other:?}"),
        };
        let reply = String::from_utf8_lossy(&done.reply);
        assert!(!reply.contains("\"error\""), "{reply}");
        done
    }

    fn select(&mut self, condition: &str) -> Done {
        self.transact(&select(condition))
    }

    fn clause(&self, text: &str) -> Clause {
        let schema = self.db.schema();
        let table = schema.table(schema.table_id("Item").expect("the schema has it"));
        let text = validate(text.as_bytes()).expect("a clause");
        Clause::parse(text, table, None).expect("a clause")
    }

    fn key(&self, column: &str, by_order: bool) -> KeyName {
        let schema = self.db.schema();
        let table = schema.table_id("Item").expect("the schema has it");
        let column = schema.table(table).column_ids().find(|(_, c)| c.name == column);
        self.db.key_for(table, column.expect("the schema has it").0, by_order)
    }

    fn have_key(&mut self, column: &str, by_order: bool) -> KeyName {
        let key = self.key(column, by_order);
        self.db.add_key(key).expect("the column can have it");
        let events = self.db.build_keys(usize::MAX);
        assert!(matches!(&events[..], [KeyEvent::Ready { origin: Origin::Declared, .. }]));
        key
    }
}

fn select(condition: &str) -> String {
    format!(r#"{{"op":"select","table":"Item","columns":["name"],"where":[{condition}]}}"#)
}

fn item(n: usize, share: usize) -> String {
    format!(
        r#"{{"op":"insert","table":"Item","row":{{"name":"item {n}","owner":"owner {share}",
            "parity":{},"size":{n},"weight":{share}.5,"tags":["set",["all","tag {share}"]],
            "ids":["map",[["all","yes"],["owner","{share}"]]],
            "group":{},"parts":["set",[{}]]}}}}"#,
        n.is_multiple_of(2),
        group(share % (ROWS / SHARE)),
        group((share + 1) % (ROWS / SHARE)),
    )
}

/// Rows in an answer.
fn count(done: &Done) -> usize {
    String::from_utf8_lossy(&done.reply).matches("\"name\"").count()
}

#[test]
fn a_key_finds_rows_without_a_look_at_the_others() {
    let groups = [group(7), group(8)];
    let searches = [
        ("owner", false, r#"["owner","==","owner 7"]"#.to_owned()),
        ("size", true, r#"["size",">=",70],["size","<",80]"#.to_owned()),
        ("size", false, r#"["size","==",77]"#.to_owned()),
        ("weight", true, r#"["weight","==",7.5]"#.to_owned()),
        ("weight", true, r#"["weight","includes",7.5]"#.to_owned()),
        ("weight", true, r#"["weight",">",7.1],["weight","<=",7.5]"#.to_owned()),
        ("tags", false, r#"["tags","includes",["set",["all","tag 7"]]]"#.to_owned()),
        ("tags", false, r#"["tags","==",["set",["all","tag 7"]]]"#.to_owned()),
        ("ids", false, r#"["ids","includes",["map",[["owner","7"]]]]"#.to_owned()),
        ("parts", false, format!(r#"["parts","includes",{}]"#, groups[1])),
    ];
    for (column, by_order, condition) in searches {
        let mut scene = Scene::new();
        let scanned = scene.select(&condition);
        assert_eq!((scanned.work.scans, scanned.work.rows_visited), (1, ROWS as u64));
        let key = scene.have_key(column, by_order);
        let found = scene.select(&condition);
        assert_eq!(found.reply, scanned.reply, "{condition}");
        let n_rows = count(&found);
        assert!(n_rows == 1 || n_rows == SHARE, "{condition}: {n_rows}");
        assert_eq!((found.work.scans, found.work.rows_visited), (0, n_rows as u64), "{condition}");
        let by_inverted = u64::from(key.kind == KeyKind::Inverted);
        let counted = (found.work.by_alternate, found.work.by_inverted);
        assert_eq!(counted, (1 - by_inverted, by_inverted), "{condition}");
    }
}

#[test]
fn a_weak_reference_finds_its_rows_without_a_key() {
    let mut scene = Scene::new();
    let condition = format!(r#"["group","==",{}]"#, group(7));
    let found = scene.select(&condition);
    assert_eq!((found.work.by_inverted, found.work.rows_visited), (1, SHARE as u64));
    assert_eq!(count(&found), SHARE);
    // A snapshot knows no references.
    let text = format!("[{}]", select(&condition));
    let array = validate(text.as_bytes()).expect("operations");
    let operations: Vec<Text<'_>> = array.elements().expect("an array").collect();
    let mut env = Env::new(&mut scene.uuids);
    let Outcome::Done(done) = read(&scene.db.snapshot(), &operations, &mut env, 1) else {
        panic!("it only reads")
    };
    assert_eq!((done.reply, done.work.scans), (found.reply, 1));
}

#[test]
fn candidates_of_a_clause_are_told_to_who_runs_no_transaction() {
    let mut scene = Scene::new();
    let table = scene.key("owner", false).table;
    let owner = scene.clause(r#"["owner","==","owner 7"]"#);
    let group = scene.clause(&format!(r#"["group","==",{}]"#, group(7)));
    let mut searches = Searches::default();
    assert_eq!(searches.candidates(&scene.db, table, &owner, ROWS), (None, 0), "no key");
    scene.have_key("owner", false);
    for clause in [owner, group] {
        let rows = scene.db.store().table(table).iter().filter(|row| clause.matches(row));
        let rows: Vec<Uuid> = rows.map(Row::uuid).collect();
        assert_eq!(rows.len(), SHARE);
        let walked = SHARE as u64;
        let found = searches.candidates(&scene.db, table, &clause, SHARE);
        assert_eq!(found, (Some(rows), walked));
        let found = searches.candidates(&scene.db, table, &clause, SHARE - 1);
        assert_eq!(found, (None, walked), "they are too many");
    }
}

#[test]
fn what_was_walked_in_keys_that_rule_each_other_out_is_told() {
    let mut scene = Scene::new();
    scene.have_key("tags", false);
    for (tag, from, to) in [("left", 0, 300), ("right", 300, 600)] {
        scene.transact(&format!(
            r#"{{"op":"update","table":"Item","where":[["size",">=",{from}],["size","<",{to}]],
                "row":{{"tags":"{tag}"}}}}"#
        ));
    }
    let both = scene.clause(r#"["tags","includes",["set",["left","right"]]]"#);
    let table = scene.key("tags", false).table;
    let (found, walked) = Searches::default().candidates(&scene.db, table, &both, 400);
    assert_eq!(found, Some(Vec::new()));
    assert!(walked >= 600, "{walked}");
}

#[test]
fn an_empty_set_is_found_too() {
    let mut scene = Scene::new();
    scene.have_key("tags", false);
    scene.transact(r#"{"op":"insert","table":"Item","row":{"name":"bare"}}"#);
    let found = scene.select(r#"["tags","==",["set",[]]]"#);
    assert_eq!((count(&found), found.work.rows_visited), (1, 1));
    // Everything includes nothing.
    let found = scene.select(r#"["tags","includes",["set",[]]]"#);
    assert_eq!((count(&found), found.work.scans), (ROWS + 1, 1));
}

#[test]
fn what_a_transaction_has_moved_is_found_before_its_commit() {
    let mut scene = Scene::new();
    scene.have_key("owner", false);
    let update = r#"{"op":"update","table":"Item","where":[["owner","==","owner 3"]],
        "row":{"owner":"owner 4"}}"#;
    let [three, four] = ["3", "4"].map(|n| select(&format!(r#"["owner","==","owner {n}"]"#)));
    let done = scene.transact(&format!("{update},{three},{four}"));
    assert_eq!((count(&done), done.work.scans), (2 * SHARE, 0));
    assert!(done.work.rows_visited < 10 * SHARE as u64);
}

#[test]
fn a_page_misses_no_row_when_the_transaction_has_deleted_many_that_are_filed_before_it() {
    let (mut keyed, mut plain) = (Scene::new(), Scene::new());
    keyed.have_key("size", true);
    // More rows of one value than a page looks at, but for those that go in the same transaction.
    let update = r#"{"op":"update","table":"Item","where":[["size","<",700]],"row":{"size":1}}"#;
    let delete = r#"{"op":"delete","table":"Item","where":[["size","==",1],["parity","==",true]]}"#;
    let page = r#"{"op":"select","table":"Item","where":[],"columns":["name"],
        "order_by":["size"],"limit":10}"#;
    let [by_key, by_scan] = [&mut keyed, &mut plain].map(|scene| {
        scene.transact(update);
        scene.transact(&format!("{delete},{page}")).reply
    });
    assert_eq!(String::from_utf8_lossy(&by_key), String::from_utf8_lossy(&by_scan));
    assert_eq!(String::from_utf8_lossy(&by_key).matches("\"name\"").count(), 10);
}

#[test]
fn keys_of_two_columns_are_intersected() {
    let mut scene = Scene::new();
    // 200 rows each, 20 in both.
    for (column, modulus) in [("size", 20), ("weight", 10)] {
        let values = (0..modulus).map(|n| {
            let rows = (0..ROWS)
                .filter(|row| if column == "size" { row % 20 == n } else { row / 20 % 10 == n });
            rows.map(|row| {
                format!(
                    r#"{{"op":"update","table":"Item","where":[["name","==","item {row}"]],
                        "row":{{"{column}":{n}}}}}"#
                )
            })
            .collect::<Vec<_>>()
            .join(",")
        });
        let operations: Vec<String> = values.collect();
        scene.transact(&operations.join(","));
    }
    let condition = r#"["size","==",7],["weight","==",3]"#;
    let scanned = scene.select(condition);
    scene.have_key("size", false);
    let one = scene.select(condition);
    assert_eq!((&one.reply, one.work.rows_visited), (&scanned.reply, 200));
    scene.have_key("weight", false);
    let both = scene.select(condition);
    assert_eq!((both.reply, both.work.rows_visited), (scanned.reply, 20));
}

#[test]
fn a_reference_that_the_transaction_has_just_made_is_found_among_many_candidates() {
    let mut scene = Scene::new();
    scene.have_key("owner", false);
    let update = |condition: &str, row: &str| {
        format!(r#"{{"op":"update","table":"Item","where":[{condition}],"row":{{{row}}}}}"#)
    };
    let refer = format!(r#""group":{}"#, group(7));
    // 100 rows by the key, 200 by the references, none by both.
    scene.transact(&update(r#"["size","<",100]"#, r#""owner":"many""#));
    scene.transact(&update(r#"["size",">=",1000],["size","<",1200]"#, &refer));
    scene.transact(&update(r#"["size",">=",70],["size","<",80]"#, r#""group":["set",[]]"#));
    let search = select(&format!(r#"["owner","==","many"],["group","==",{}]"#, group(7)));
    let before = scene.transact(&search);
    assert_eq!((count(&before), before.work.rows_visited), (0, 0));
    let done = scene.transact(&format!("{},{search}", update(r#"["name","==","item 5"]"#, &refer)));
    assert_eq!((count(&done), done.work.scans), (1, 0));
}

#[test]
fn a_key_that_finds_half_of_the_rows_is_not_used() {
    let mut scene = Scene::new();
    scene.have_key("parity", false);
    let found = scene.select(r#"["parity","==",true]"#);
    assert_eq!((count(&found), found.work.scans), (ROWS / 2, 1));
    // It did not go through all of the key to find that out.
    assert!(found.work.entries_walked <= (ROWS / 8 + 9) as u64);
}

#[test]
fn a_key_is_built_in_steps_while_commits_go_on() {
    let mut scene = Scene::new();
    let key = scene.key("tags", false);
    assert_eq!(scene.db.add_key(key), Ok(()));
    assert_eq!(scene.db.add_key(key), Err(KeyError::Exists));
    let ordered = KeyName { kind: KeyKind::Ordered, ..key };
    assert_eq!(scene.db.add_key(ordered), Err(KeyError::Unfit));
    let condition = r#"["tags","includes","tag 7"]"#;
    let (mut steps, mut ready) = (0, Vec::new());
    while scene.db.has_keys_to_build() {
        let n = ROWS + steps;
        let change = match steps % 3 {
            0 => item(n, 7),
            1 => format!(r#"{{"op":"delete","table":"Item","where":[["name","==","item {n}"]]}}"#),
            _ => format!(
                r#"{{"op":"mutate","table":"Item","where":[["name","==","item {steps}"]],
                    "mutations":[["tags","delete","all"],["tags","insert","tag 7"]]}}"#
            ),
        };
        scene.transact(&change);
        assert_eq!(scene.select(condition).work.scans, 1, "it does not serve yet");
        let before = scene.db.keys().next().expect("the key is there").entries;
        ready = scene.db.build_keys(100);
        let after = scene.db.keys().next().expect("the key is there").entries;
        assert!(after - before <= 110, "{before} to {after}");
        steps += 1;
    }
    assert!(steps > ROWS / 100, "{steps}");
    assert!(matches!(&ready[..], [KeyEvent::Ready { scanned: 0, .. }]), "{ready:?}");
    assert!(scene.db.keys_match_rows());
    let found = scene.select(condition);
    assert_eq!(found.work.scans, 0);
    let dropped = scene.db.drop_key(key);
    assert!(dropped.is_some() && scene.db.keys().next().is_none());
    assert_eq!(scene.select(condition).reply, found.reply);
}

const BUDGET: KeyBudget = KeyBudget { bytes: 1 << 20, step: 1_000 };

/// Selects until the engine has built a key of its own; the number of selections.
fn select_until_ready(scene: &mut Scene, condition: &str, most: usize) -> Option<usize> {
    for n in 1..=most {
        scene.select(condition);
        let events = scene.db.tend_keys(BUDGET);
        if let Some(KeyEvent::Begun { scanned, .. }) = events.first() {
            assert!(*scanned >= 32 * ROWS as u64);
            while scene.db.has_keys_to_build() {
                scene.db.tend_keys(BUDGET);
            }
            return Some(n);
        }
    }
    None
}

#[test]
fn a_column_that_is_scanned_gets_a_key_until_it_does_not_pay() {
    let mut scene = Scene::new();
    let condition = r#"["owner","==","owner 7"]"#;
    assert_eq!(select_until_ready(&mut scene, condition, 100), Some(32));
    let state = scene.db.keys().next().expect("there is a key");
    assert_eq!(state.key, scene.key("owner", false));
    assert_eq!((state.origin, state.serves, state.entries), (Origin::Automatic, true, ROWS));
    assert_eq!(scene.select(condition).work.by_alternate, 1);

    // As long as it saves enough, it stays.
    let change = |n: usize| {
        format!(
            r#"{{"op":"update","table":"Item","where":[["name","==","item {n}"]],
                "row":{{"owner":"owner of {n}"}}}}"#
        )
    };
    for n in 0..ROWS {
        scene.transact(&change(n));
        if n % 100 == 0 {
            scene.select(condition);
        }
        let events = scene.db.tend_keys(BUDGET);
        assert!(events.is_empty(), "{events:?}");
    }
    let mut dropped = Vec::new();
    for n in 0..2 * ROWS {
        scene.transact(&change(ROWS - 1 - n % ROWS).replace("owner of", &format!("{n} of")));
        dropped.extend(scene.db.tend_keys(BUDGET));
    }
    let [KeyEvent::Dropped { why: Why::DoesNotPay { saved, filed }, .. }] = &dropped[..] else {
        panic!("{dropped:?}")
    };
    assert!(saved < &(8 * filed) && *filed >= ROWS as u64, "{saved} {filed}");

    // The next time more is needed to convince it.
    let condition = r#"["owner","==","nobody"]"#;
    assert_eq!(select_until_ready(&mut scene, condition, 50), None);
    assert!(select_until_ready(&mut scene, condition, 20).is_some());
    assert!(scene.db.keys_match_rows());
}

#[test]
fn no_key_is_built_for_what_finds_many_rows_or_beyond_the_budget() {
    let mut scene = Scene::new();
    assert_eq!(select_until_ready(&mut scene, r#"["parity","==",true]"#, 100), None);
    let poor = KeyBudget { bytes: 10_000, step: 1_000 };
    for _ in 0..100 {
        scene.select(r#"["owner","==","owner 7"]"#);
        assert!(scene.db.tend_keys(poor).is_empty());
    }
    assert!(scene.db.keys().next().is_none());
}

#[test]
fn no_key_is_built_for_scans_that_are_too_long_and_would_find_many_rows() {
    // A fifth of the rows, side by side.
    let fifth = r#"{"op":"update","table":"Item","where":[["size","<",800]],"row":{"size":7}}"#;
    for (condition, is_wanted) in [
        (r#"["parity","==",true]"#, false),
        (r#"["tags","includes","all"]"#, false),
        (r#"["size","==",7]"#, false),
        (r#"["owner","==","owner 7"]"#, true),
        (r#"["size",">",3700]"#, true),
    ] {
        let mut of_requests = Scene::new();
        of_requests.transact(fifth);
        for _ in 0..40 {
            let outcome = of_requests.run(&select(condition), 1_000);
            assert!(matches!(outcome, Outcome::TooLong { .. }), "{outcome:?}");
        }
        let mut of_monitors = Scene::new();
        of_monitors.transact(fifth);
        let (clause, table) = (of_monitors.clause(condition), of_monitors.key("size", true).table);
        for _ in 0..40 {
            let mut searches = Searches::default();
            searches.scanned(&of_monitors.db, table, Some(&clause), None);
            of_monitors.db.note_searches(searches);
        }
        for mut scene in [of_requests, of_monitors] {
            let events = scene.db.tend_keys(BUDGET);
            let has_begun = matches!(events[..], [KeyEvent::Begun { .. }]);
            assert_eq!(has_begun, is_wanted, "{condition}: {events:?}");
        }
    }
}

#[test]
fn the_key_that_saved_least_makes_room() {
    let mut scene = Scene::new();
    let (owner, size) = (r#"["owner","==","owner 7"]"#, r#"["size","==",77]"#);
    assert!(select_until_ready(&mut scene, owner, 100).is_some());
    // Room for one.
    let budget = KeyBudget { bytes: ROWS * 15, step: 10_000 };
    let mut events = Vec::new();
    for _ in 0..400 {
        scene.select(size);
        events.extend(scene.db.tend_keys(budget));
    }
    let (owner, size) = (scene.key("owner", false), scene.key("size", false));
    let made_room = |event: &&KeyEvent| match event {
        KeyEvent::Dropped { key, why, .. } => (*key, *why) == (owner, Why::Room),
        _ => false,
    };
    assert_eq!(events.iter().filter(made_room).count(), 1);
    let keys: Vec<_> = scene.db.keys().map(|state| (state.key, state.serves)).collect();
    assert_eq!(keys, [(size, true)]);
}

#[test]
fn the_tables_of_a_key_are_those_of_the_schema() {
    let scene = Scene::new();
    assert_eq!(
        scene.key("owner", true).kind,
        KeyKind::Ordered,
        "pages come in the order of strings"
    );
    assert_eq!(scene.key("size", true).kind, KeyKind::Ordered);
    assert_eq!(scene.key("ids", true).kind, KeyKind::Inverted);
    assert_ne!(scene.key("ids", true).table, TableId(0));
}
