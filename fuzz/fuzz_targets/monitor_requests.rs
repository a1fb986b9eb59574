//! Any monitor requests are taken or refused with a reason; all that a monitor ever says is JSON,
//! whatever its conditions become. The first byte is the version, then come the requests and, on
//! further lines, requests of `monitor_cond_change`, with changes of the rows in between.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weir_data::{Committed, DatumRef, Ids, Schema, UuidSource};
use weir_engine::{Database, Env, Outcome, execute};
use weir_json::{Kind, validate};
use weir_monitor::{ConditionChange, MonitorKey, Monitors, Rows, Update, Version};

const SCHEMA: &[u8] = br#"{"name":"D","tables":{"T":{"columns":{"s":{"type":"string"},
"i":{"type":{"key":"integer","min":0,"max":"unlimited"}},"r":{"type":{"key":"real","min":0,"max":1}},
"m":{"type":{"key":"string","value":"integer","min":0,"max":"unlimited"}},"b":{"type":"boolean"}}},
"U":{"isRoot":true,"columns":{"t":{"type":{"key":{"type":"uuid","refTable":"T"},"min":0,"max":1}}}}}}"#;

/// Made one after the other, and then again.
const CHANGES: [&[u8]; 4] = [
    br#"[{"op":"insert","table":"T","row":{"s":"a","i":["set",[1,2]],"m":["map",[["k",1]]]}},
        {"op":"insert","table":"U","row":{}},{"op":"insert","table":"T","row":{"s":"b","r":1.5}}]"#,
    br#"[{"op":"mutate","table":"T","where":[],"mutations":[["i","insert",7],["m","insert",["map",[["l",2]]]]]}]"#,
    br#"[{"op":"update","table":"T","where":[["s","==","a"]],"row":{"s":"c","b":true}}]"#,
    br#"[{"op":"delete","table":"T","where":[["s","!=","b"]]}]"#,
];

struct Scene {
    db: Database,
    monitors: Monitors,
    uuids: UuidSource,
    step: usize,
}

impl Scene {
    fn new() -> Self {
        let schema = Schema::parse_bytes(SCHEMA).expect("a schema");
        let db = Database::new(Arc::new(schema), 7);
        Self { db, monitors: Monitors::new(7), uuids: UuidSource::new([1, 2, 3, 4]), step: 0 }
    }

    fn initial(&mut self, key: MonitorKey) -> Arc<Vec<u8>> {
        let find = |table, index, values: &[DatumRef<'_>]| self.db.lookup(table, index, values);
        let rows = Rows::new(self.db.store(), &find);
        self.monitors.initial(key, rows, u64::MAX).expect("there is no bound")
    }

    fn compose(&self, change: &ConditionChange) -> Option<Vec<u8>> {
        let find = |table, index, values: &[DatumRef<'_>]| self.db.lookup(table, index, values);
        change.compose(Rows::new(self.db.store(), &find), u64::MAX).expect("there is no bound")
    }

    fn change(&mut self) {
        let text = validate(CHANGES[self.step % CHANGES.len()]).expect("JSON");
        self.step += 1;
        let operations: Vec<_> = text.elements().expect("an array").collect();
        let uuids = &mut self.uuids;
        let mut env = Env::new(uuids);
        let Outcome::Done(done) = execute(&mut self.db, &operations, &mut env) else { return };
        let Some(delta) = done.delta else { return };
        let (position, delta) = (self.db.position(), Arc::new(delta));
        let committed = Committed { position, ids: Ids::default(), delta };
        self.monitors.commit(&committed, self.db.schema());
    }

    fn flush(&mut self) {
        let flushed = self.monitors.flush_all(self.db.store(), &|_| false, u64::MAX, true);
        flushed.updates.iter().for_each(check);
        assert!(!self.monitors.has_pending());
    }
}

fn check(update: &Update) {
    let message = [update.head.as_slice(), update.body.as_slice()].concat();
    assert!(validate(&message).is_ok(), "{}", String::from_utf8_lossy(&message));
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, input)) = input.split_first() else { return };
    let version = [Version::V1, Version::V2, Version::V3][usize::from(first % 3)];
    let mut lines = input.split(|byte| *byte == b'\n').filter_map(|line| validate(line).ok());
    let Some(requests) = lines.next() else { return };
    let mut scene = Scene::new();
    scene.change();
    scene.flush();
    let key = match scene.monitors.add(version, b"\"m\"".to_vec(), requests, scene.db.schema()) {
        Ok(key) => key,
        Err(_) => return assert!(scene.monitors.is_empty(), "refused and yet there"),
    };
    let initial = scene.initial(key);
    assert_eq!(validate(&initial).expect("initial rows are JSON").kind(), Kind::Object);
    for requests in lines.take(8) {
        scene.change();
        if first & 0x80 == 0 {
            scene.flush();
        }
        scene.change();
        let store = scene.db.store();
        let mut updates = scene.monitors.flush(&[key], store, &|_| false, u64::MAX).updates;
        let id = b"\"m\"".to_vec();
        let changed = scene.monitors.change_condition(key, id, requests, scene.db.schema());
        if let Some(change) = changed.ok().flatten() {
            let body = scene.compose(&change);
            assert_eq!(body, change.compose_from(&scene.db.store().snapshot()));
            let head = Arc::clone(change.head());
            updates.extend(body.map(|body| Update { to: vec![key], head, body: Arc::new(body) }));
        }
        updates.iter().for_each(check);
    }
    (0..4).for_each(|_| scene.change());
    scene.flush();
    let schema = Arc::clone(scene.db.schema());
    scene.monitors.remove(key, &schema);
    assert!(scene.monitors.is_empty());
});
