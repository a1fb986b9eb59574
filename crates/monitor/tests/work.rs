//! How much is done and kept, counted: never a matter of how many equal monitors there are.

mod scene;

use std::cell::Cell;
use std::sync::Arc;

use scene::Scene;
use weir_data::{Ages, Atom};
use weir_monitor::Version::{V1, V2, V3};
use weir_monitor::{MonitorKey, PENDING_BYTES_MAX, Rows};

const BRIDGES: &str = r#"{"Bridge":{"columns":["name","n"]}}"#;

fn equal_monitors(scene: &mut Scene, n: usize) -> Vec<MonitorKey> {
    (0..n).map(|_| scene.add(V2, BRIDGES)).collect()
}

#[test]
fn a_body_is_composed_once_for_all_equal_monitors() {
    for n in [1, 100] {
        let mut s = Scene::new();
        let keys = equal_monitors(&mut s, n);
        s.insert("Bridge", 1, &[]).commit();
        let updates = s.flush_all(&[]);
        assert_eq!(s.monitors.counts().composed, 1, "{n} monitors");
        assert_eq!(updates.len(), 1);
        assert_eq!(updates[0].to, keys);
        assert_eq!(s.monitors.counts().groups, 1);
    }
}

#[test]
fn other_names_share_the_body_and_each_version_has_its_own() {
    let mut s = Scene::new();
    let keys = [V2, V3, V1, V2, V3, V1].map(|version| s.add(version, BRIDGES));
    for key in &keys[..3] {
        s.try_change(*key, "\"other\"", "{}").expect("accepted");
    }
    s.insert("Bridge", 1, &[]).commit();
    let updates = s.flush_all(&[]);
    assert_eq!(s.monitors.counts().composed, 3, "the id of the state is in that of version 3");
    let body = |key| &updates.iter().find(|update| update.to == [key]).expect("an update").body;
    for (at, key) in keys.iter().enumerate() {
        let equal: Vec<bool> = keys.iter().map(|of| Arc::ptr_eq(body(*key), body(*of))).collect();
        assert_eq!(equal, [0, 1, 2, 0, 1, 2].map(|version| version == at % 3));
    }
}

#[test]
fn other_words_for_the_same_are_the_same_group() {
    let mut s = Scene::new();
    for requests in [
        r#"{"Bridge":{"columns":["name","n"]},"Port":{"where":[["n","==",1],["n","==",2]]}}"#,
        r#"{"Port":[{"where":[["n","==",2],["n","==",1],["n","==",2]]}],
            "Bridge":[{"columns":["n"]},{"columns":["name"]}]}"#,
        r#"{"Port":[{"where":[["n","==",1.0],["n","==",2]]}],
            "Bridge":[{"columns":["n","name"],"where":[]}]}"#,
        r#"{"Port":[{"where":[["n","==",1],["n","==",2]]}],
            "Bridge":[{"columns":["n","name"],"where":[true]}]}"#,
    ] {
        s.add(V2, requests);
        assert_eq!(s.monitors.counts().groups, 1, "{requests}");
    }
    s.add(
        V2,
        r#"{"Bridge":{"columns":["name","n"]},"Port":{"where":[["n","==",1],["n","!=",2]]}}"#,
    );
    assert_eq!(s.monitors.counts().groups, 2);
}

#[test]
fn sessions_that_flush_their_own_at_one_place_share_the_body() {
    let mut s = Scene::new();
    let keys = equal_monitors(&mut s, 50);
    s.insert("Bridge", 1, &[]).commit();
    let bodies: Vec<_> = keys.iter().map(|key| Arc::clone(&s.flush(&[*key])[0].body)).collect();
    assert_eq!(s.monitors.counts().composed, 1);
    assert!(bodies.iter().all(|body| Arc::ptr_eq(body, &bodies[0])));
    assert_eq!(s.monitors.counts().cached_bytes, 0, "nobody else needs it");
    assert!(!s.monitors.has_pending());
    drop(s);
    assert_eq!(Arc::strong_count(&bodies[0]), 50);
}

#[test]
fn a_kept_body_goes_with_the_next_commit() {
    let mut s = Scene::new();
    let keys = equal_monitors(&mut s, 3);
    s.insert("Bridge", 1, &[]).commit();
    let first = s.flush(&[keys[0]]);
    assert!(s.monitors.counts().cached_bytes > 0);
    s.insert("Bridge", 2, &[]).commit();
    assert_eq!(s.monitors.counts().cached_bytes, 0);
    assert_eq!(Arc::strong_count(&first[0].body), 1, "nothing pins it");
    let second = s.flush_all(&[]);
    let sizes: Vec<usize> = second.iter().map(|update| update.to.len()).collect();
    assert_eq!(sizes, [2, 1], "two have both rows to hear of, one only the second");
    assert_eq!(s.monitors.counts().composed, 3);
    assert_eq!(s.monitors.counts().cached_bytes, 0);
}

#[test]
fn a_kept_body_goes_with_its_group() {
    let mut s = Scene::new();
    let keys = equal_monitors(&mut s, 3);
    let slow = s.add(V2, r#"{"Bridge":{}}"#);
    s.insert("Bridge", 1, &[]).commit();
    s.flush(&[keys[0]]);
    assert!(s.monitors.counts().cached_bytes > 0);
    keys.iter().for_each(|key| s.remove(*key));
    assert_eq!(s.monitors.counts().cached_bytes, 0);
    assert!(s.monitors.has_pending());
    s.remove(slow);
    assert!(!s.monitors.has_pending());
    assert_eq!(s.monitors.pending_bytes(), 0);
}

#[test]
fn a_table_that_nobody_watches_costs_nothing() {
    let mut s = Scene::new();
    s.add(V2, BRIDGES);
    s.add(V2, r#"{"Quiet":{"where":[false]}}"#);
    s.insert("Port", 1, &[]).insert("Quiet", 2, &[]).commit();
    assert!(!s.monitors.has_pending());
    assert_eq!(s.monitors.pending_bytes(), 0);
    assert!(s.flush_all(&[]).is_empty());
    assert_eq!(s.monitors.counts().composed, 0);
}

#[test]
fn groups_that_do_not_watch_a_changed_table_are_left_alone() {
    let mut s = Scene::new();
    for n in 0..500 {
        s.add(V2, &format!(r#"{{"Port":{{"where":[["n","==",{n}]]}}}}"#));
    }
    let bridges = s.add(V2, BRIDGES);
    s.insert("Bridge", 1, &[]).commit();
    assert_eq!(s.flush_all(&[])[0].to, [bridges]);
    assert_eq!(s.monitors.counts().composed, 1);
    assert_eq!(s.monitors.counts().groups, 501);
    s.insert("Port", 7, &[("n", "7")]).commit();
    assert_eq!(s.flush_all(&[]).len(), 1);
    assert_eq!(s.monitors.counts().composed, 2, "only for those whose condition holds");
    assert!(!s.monitors.has_pending());
}

#[test]
fn conditions_on_other_rows_cost_nothing() {
    let mut s = Scene::new();
    for n in 0..500 {
        let port = format!(r#"[["n","==",{n}],["n","==",{}],[false]]"#, 1000 + n);
        let port = port.replace("[false]", "false");
        let bridge = format!(r#"[["ports","includes","p{n}"],["name","==","b{n}"]]"#);
        s.add(V2, &format!(r#"{{"Port":{{"where":{port}}},"Bridge":{{"where":{bridge}}}}}"#));
    }
    s.insert("Port", 1, &[("n", "700")]).insert("Bridge", 2, &[("ports", r#""p700""#)]);
    assert!(s.pass_over(), "nobody asked for such rows");
    s.set("Port", 1, &[("n", "701")]).set("Bridge", 2, &[("ports", r#""p7""#)]);
    assert!(!s.pass_over(), "one did");
    assert_eq!(s.flush_all(&[]).len(), 1);
    assert_eq!(s.monitors.counts().composed, 1);
    s.set("Bridge", 2, &[("ports", r#""p700""#)]);
    assert!(!s.pass_over(), "and is told that it is gone");
    assert_eq!(s.flush_all(&[]).len(), 1);
    s.delete("Bridge", 2).delete("Port", 1);
    assert!(s.pass_over());
    assert_eq!(s.monitors.counts().composed, 2);
}

#[test]
fn there_are_no_more_segments_than_places_where_somebody_stands() {
    let mut s = Scene::new();
    let slow = s.add(V2, BRIDGES);
    let fast = s.add(V2, BRIDGES);
    s.insert("Bridge", 1, &[]).commit();
    for n in 1..300 {
        s.set("Bridge", 1, &[("n", &n.to_string())]).commit();
        s.flush_all(&[slow]);
        assert_eq!(s.monitors.counts().change_sets, 1, "after {n} transactions");
    }
    let told = s.flush_all(&[]);
    assert_eq!((told.len(), told[0].to.as_slice()), (1, [slow].as_slice()));
    assert!(scene::message(&told[0]).contains(r#"{"insert":{"n":299}}"#));
    assert_eq!(s.monitors.counts().change_sets, 0);
    // Sessions that stop reading one after the other.
    let mut blocked = Vec::new();
    for n in 0..20 {
        blocked.push(s.add(V2, BRIDGES));
        s.set("Bridge", 1, &[("n", &n.to_string())]).commit();
        s.flush_all(&blocked);
        assert!(s.monitors.counts().change_sets <= blocked.len());
    }
    assert_eq!(s.monitors.counts().change_sets, 20);
    for (left, key) in blocked.iter().enumerate().rev() {
        s.remove(*key);
        assert_eq!(s.monitors.counts().change_sets, left);
    }
    s.remove(fast);
    assert_eq!(s.monitors.pending_bytes(), 0);
}

#[test]
fn a_slow_session_whose_rows_do_not_change_holds_nothing() {
    let mut s = Scene::new();
    let slow = s.add(V2, r#"{"Port":{}}"#);
    let slow_too = s.add(V2, r#"{"Bridge":{"where":[["n","==",1000]]}}"#);
    let equal = s.add(V2, r#"{"Bridge":{"where":[["n","==",1000]]}}"#);
    s.add(V2, BRIDGES);
    s.insert("Bridge", 1, &[]).commit();
    s.flush_all(&[slow]);
    assert!(!s.monitors.has_pending());
    s.set("Bridge", 1, &[("n", "1")]).commit();
    s.flush_all(&[slow, slow_too]);
    assert!(!s.monitors.has_pending(), "an equal monitor shows that there is nothing to tell");
    s.remove(equal);
}

#[test]
fn initial_rows_are_composed_once_for_a_herd() {
    let mut s = Scene::new();
    s.insert("Bridge", 1, &[("name", r#""a""#)]).commit();
    let keys = equal_monitors(&mut s, 500);
    let rows: Vec<_> = keys.iter().map(|key| s.initial_rows(*key)).collect();
    assert!(rows.iter().all(|of| Arc::ptr_eq(of, &rows[0])));
    assert_eq!(s.monitors.counts().initials, 1);
    s.insert("Port", 2, &[]).commit();
    s.initial_rows(keys[0]);
    assert_eq!(s.monitors.counts().initials, 1, "other tables do not matter");
    s.set("Bridge", 1, &[("name", r#""b""#)]).commit();
    assert_eq!(s.monitors.counts().cached_bytes, 0);
    assert!(s.initial(keys[0]).contains(r#""name":"b""#));
    assert_eq!(s.monitors.counts().initials, 2);
    s.monitors.forget_initial();
    assert_eq!(s.monitors.counts().cached_bytes, 0);
    s.initial(keys[0]);
    keys.iter().for_each(|key| s.remove(*key));
    assert_eq!(s.monitors.counts().cached_bytes, 0);
}

#[test]
fn first_rows_of_long_texts_are_composed_elsewhere() {
    let mut s = Scene::new();
    for id in 1..=20 {
        let text = format!("{:?}", "x".repeat(100_000));
        s.insert("Bridge", id, &[("name", &text)]).commit();
    }
    let key = s.add(V2, BRIDGES);
    let of = |s: &mut Scene, most| s.monitors.initial(key, Rows::of_store(&s.store), most).is_ok();
    assert!(!of(&mut s, 20_000), "two megabytes of text in a millisecond");
    assert!(of(&mut s, 100_000));
}

#[test]
fn changing_the_same_again_and_again_does_not_fill_the_memory() {
    let mut s = Scene::new();
    let slow = s.add(V2, r#"{"Bridge":{}}"#);
    s.insert("Bridge", 1, &[("name", r#""a""#)]).commit();
    s.flush(&[slow]);
    let mut most = 0;
    for n in 0..5000_u128 {
        s.set("Bridge", 1, &[("n", &n.to_string()), ("ports", &format!("\"{n}\""))]).commit();
        s.insert("Bridge", n + 2, &[]).commit();
        s.delete("Bridge", n + 2).commit();
        s.flush_all(&[slow]);
        most = most.max(s.monitors.pending_bytes());
    }
    assert!(most < 200_000, "{most} bytes pending for one changed row");
}

#[test]
fn the_estimate_of_pending_memory_follows_the_content() {
    let name = format!("\"{}\"", "x".repeat(1000));
    let mut s = Scene::new();
    for n in 0..300 {
        s.insert("Bridge", n, &[("name", &name)]);
    }
    s.commit();
    let slow = s.add(V2, BRIDGES);
    for n in 0..300 {
        s.delete("Bridge", n).commit();
        s.flush_all(&[slow]);
    }
    // A deleted row is its text, seven cells and a place in a list.
    let real = 300 * (1000 + 7 * 24 + 100);
    let estimate = s.monitors.pending_bytes();
    assert!(estimate >= real && estimate <= 3 * real, "{estimate} for {real}");
    assert!(s.monitors.overflowed().is_empty());
}

#[test]
fn past_the_limit_those_furthest_behind_are_named() {
    let mut s = Scene::new();
    let name = Atom::string(&"x".repeat(1 << 20));
    for n in 0..600 {
        s.insert_named("Bridge", n, &name);
    }
    s.commit();
    let first = s.add(V2, BRIDGES);
    let second = s.add(V2, BRIDGES);
    let reader = s.add(V2, BRIDGES);
    let mut blocked = vec![first];
    let mut n = 0;
    while s.monitors.overflowed().is_empty() {
        assert!(s.monitors.pending_bytes() <= PENDING_BYTES_MAX);
        s.delete("Bridge", n).commit();
        s.flush_all(&blocked);
        n += 1;
        if n == 10 {
            blocked.push(second);
        }
    }
    assert!(s.monitors.pending_bytes() > PENDING_BYTES_MAX);
    assert_eq!(s.monitors.overflowed(), [first]);
    s.remove(first);
    s.delete("Bridge", n).commit();
    assert!(!s.monitors.overflowed().contains(&reader));
    s.remove(second);
    s.flush_all(&[]);
    assert_eq!(s.monitors.pending_bytes(), 0);
}

#[test]
fn who_fell_behind_together_gets_the_same_long_body_one_after_the_other() {
    let mut s = Scene::new();
    let mut behind = equal_monitors(&mut s, 20);
    let long = Atom::string(&"x".repeat(200 << 10));
    s.insert_named("Bridge", 1, &long).commit();
    s.flush_all(&behind);
    let mut bodies = Vec::new();
    for n in 0..20 {
        // Who has got the body is behind again at once, since it is long.
        s.insert_named("Bridge", 10 + n, &long).commit();
        let ready = behind.remove(0);
        behind.push(ready);
        let blocked = &behind[..19];
        let updates = s.flush_all(blocked);
        assert_eq!((updates.len(), updates[0].to.as_slice()), (1, [ready].as_slice()));
        bodies.push(Arc::clone(&updates[0].body));
        assert!(s.monitors.counts().change_sets <= 2);
    }
    assert!(bodies.iter().all(|body| Arc::ptr_eq(body, &bodies[0])));
    assert_eq!(s.monitors.counts().composed, 1);
    drop(bodies);
    // The others' part: once more for all.
    let updates = s.flush_all(&[]);
    assert_eq!((updates.len(), updates[0].to.len()), (1, 20));
    assert_eq!(s.monitors.counts().composed, 2);
    assert_eq!((s.monitors.counts().cached_bytes, s.monitors.pending_bytes()), (0, 0));
}

#[test]
fn groups_with_other_conditions_say_the_same_of_the_same_row() {
    let mut s = Scene::new();
    let key = |s: &mut Scene, n: u32, columns: &str| {
        let clauses = format!(r#"[["n","<",{n}],["n",">=",{n}]]"#);
        s.add(V2, &format!(r#"{{"Bridge":{{"columns":[{columns}],"where":{clauses}}}}}"#))
    };
    let keys = [
        key(&mut s, 1, r#""n","name""#),
        key(&mut s, 2, r#""n","name""#),
        key(&mut s, 3, r#""name""#),
    ];
    s.insert("Bridge", 1, &[("n", "5")]).insert("Bridge", 2, &[]).commit();
    s.flush_all(&[]);
    s.set("Bridge", 1, &[("name", r#""a""#), ("n", "6")]).delete("Bridge", 2).commit();
    let updates = s.flush_all(&[]);
    let body = |key| {
        let update = updates.iter().find(|update| update.to == [key]).expect("an update");
        String::from_utf8_lossy(&update.body).into_owned()
    };
    assert_eq!(body(keys[0]), body(keys[1]));
    assert!(body(keys[0]).contains(r#"{"modify":{"n":6,"name":"a"}}"#), "{}", body(keys[0]));
    assert!(body(keys[0]).contains(r#"{"delete":null}"#), "{}", body(keys[0]));
    assert!(body(keys[2]).contains(r#"{"modify":{"name":"a"}}"#), "{}", body(keys[2]));
}

/// What a flush may cost in the tests below.
const STEP: u64 = 2_000;

/// What the flush has done can be told from outside: rows that it told of, and bodies.
fn is_a_step(flushed: &weir_monitor::Flushed) -> bool {
    let bytes: usize = flushed.updates.iter().map(|update| update.body.len()).sum();
    bytes as u64 / 32 <= STEP
}

/// Monitors with other conditions each, which ask for the same rows.
fn fifty_groups(s: &mut Scene) -> Vec<MonitorKey> {
    let wanted = |n| format!(r#"{{"Bridge":{{"columns":["n"],"where":[["n","<",{n}]]}}}}"#);
    (1000..1050).map(|n| s.add(V2, &wanted(n))).collect()
}

fn commit_rows(s: &mut Scene, n: u128) {
    for n in 0..n {
        s.insert("Bridge", n, &[("n", &n.to_string())]);
    }
    s.commit();
}

#[test]
fn many_groups_are_told_in_several_steps() {
    let mut s = Scene::new();
    let keys = fifty_groups(&mut s);
    commit_rows(&mut s, 100);
    let (mut told, mut steps) = (Vec::new(), 0);
    loop {
        let flushed = s.flush_within(&[], STEP);
        assert!(is_a_step(&flushed) && flushed.leaving.is_empty());
        assert!(!flushed.updates.is_empty(), "every step tells somebody");
        told.extend(flushed.updates.into_iter().flat_map(|update| update.to));
        steps += 1;
        // What happens between two steps is told with the rest.
        s.set("Bridge", 1, &[("name", &format!("\"{steps}\""))]).commit();
        if told.len() >= keys.len() {
            break;
        }
        assert!(flushed.has_more);
    }
    told.sort_unstable();
    assert_eq!(told, keys, "each was told once");
    assert!(steps >= 5, "{steps}");
    while s.flush_within(&[], STEP).has_more {}
    assert!(!s.monitors.has_pending());
}

#[test]
fn what_costs_more_than_a_step_is_composed_elsewhere() {
    let mut s = Scene::new();
    let all = [s.add(V2, BRIDGES), s.add(V2, BRIDGES)];
    commit_rows(&mut s, 600);
    let flushed = s.flush_within(&[], STEP);
    assert!(is_a_step(&flushed));
    let [leaving] = &flushed.leaving[..] else { panic!("{:?}", flushed.leaving) };
    assert_eq!(leaving.keys, all);
    // Those who are away wait, whatever is flushed and committed meanwhile.
    s.delete("Bridge", 7).set("Bridge", 8, &[("name", r#""late""#)]).commit();
    let meanwhile = s.flush_within(&[], STEP);
    assert!(meanwhile.updates.is_empty() && meanwhile.leaving.is_empty());
    assert!(s.flush(&all).is_empty());
    let leaving = flushed.leaving.into_iter().next().expect("there is one");
    let mut updates = Vec::new();
    let bodies = leaving.work.compose(&|| {});
    s.monitors.take_late(leaving.id, bodies, s.store.schema(), &mut updates);
    assert_eq!((updates.len(), &updates[0].to[..]), (1, &all[..]), "one body for both");
    assert_eq!(scene::message(&updates[0]).matches("insert").count(), 600, "as it was then");
    let rest = s.flush_within(&[], STEP).updates;
    let rest = scene::message(&rest[0]);
    assert!(rest.contains(r#"{"modify":{"name":"late"}}"#) && rest.contains("delete"), "{rest}");
    assert!(!s.monitors.has_pending());
}

/// Inserts rows, then changes most of them and deletes some; what monitors are told of the second
/// commit, in steps that may cost this much.
fn told_of_many(rows: u128, most: u64) -> Vec<String> {
    let mut s = Scene::new();
    s.add(V2, BRIDGES);
    s.add(V1, r#"{"Bridge":{"columns":["n"]},"Port":{}}"#);
    s.add(V2, r#"{"Bridge":{"columns":["name"],"where":[["n","<",7]]}}"#);
    s.add(V2, r#"{"Bridge":{"where":[["n","==",5],["n","==",40]]}}"#);
    s.add(V2, r#"{"Bridge":{"where":[["n","==",-1]]}}"#);
    commit_rows(&mut s, rows);
    assert_eq!(s.flush_all(&[]).len(), 4);
    for n in 0..rows - 10 {
        s.set("Bridge", n, &[("n", &(n / 2).to_string())]);
    }
    s.delete("Bridge", rows - 1).insert("Port", 1, &[]).commit();
    let mut flushed = s.flush_within(&[], most);
    for leaving in flushed.leaving {
        // What comes later is not in it.
        s.set("Bridge", 3, &[("n", "1000000")]).commit();
        let bodies = leaving.work.compose(&|| {});
        s.monitors.take_late(leaving.id, bodies, s.store.schema(), &mut flushed.updates);
    }
    flushed.updates.iter().map(scene::message).collect()
}

#[test]
fn a_change_of_most_rows_is_told_the_same_wherever_it_is_composed() {
    for rows in [100, 6000] {
        let at_once = told_of_many(rows, u64::MAX);
        assert_eq!(at_once.len(), 4);
        for most in [1, STEP] {
            assert_eq!(told_of_many(rows, most), at_once, "{rows} rows, {most} units");
        }
    }
}

/// A step does not suffice to look at all these rows, though it would to tell of the two.
#[test]
fn whom_very_many_rows_concern_is_found_out_elsewhere() {
    let mut s = Scene::new();
    let by_value = |s: &mut Scene, n: u64| {
        s.add(V2, &format!(r#"{{"Bridge":{{"columns":["n"],"where":[["n","==",{n}]]}}}}"#))
    };
    let all = [7, 11, 5000].map(|n| by_value(&mut s, n));
    commit_rows(&mut s, 1000);
    let flushed = s.flush_within(&[], STEP);
    assert!(flushed.updates.is_empty() && !flushed.has_more);
    let [leaving] = &flushed.leaving[..] else { panic!("{:?}", flushed.leaving) };
    assert_eq!(leaving.keys, all);
    let leaving = flushed.leaving.into_iter().next().expect("there is one");
    let mut updates = Vec::new();
    let bodies = leaving.work.compose(&|| {});
    s.monitors.take_late(leaving.id, bodies, s.store.schema(), &mut updates);
    let told: Vec<_> = updates.iter().map(|update| update.to.clone()).collect();
    assert_eq!(told, [[all[0]], [all[1]]]);
    let told = updates.iter().map(scene::message);
    told.zip([7, 11])
        .for_each(|(told, n)| assert!(told.contains(&format!(r#""n":{n}"#)), "{told}"));
    assert!(!s.monitors.has_pending());

    // A few rows are looked at in the step.
    s.set("Bridge", 7, &[("n", "5000")]).commit();
    let flushed = s.flush_within(&[], STEP);
    assert_eq!((flushed.updates.len(), flushed.leaving.len()), (2, 0));
}

/// Two who do not read, one of whom has read a change more, and then very many rows have changed.
fn behind_at_two_places() -> (Scene, [MonitorKey; 2]) {
    let mut s = Scene::new();
    let keys = [s.add(V2, BRIDGES), s.add(V2, BRIDGES)];
    s.insert("Bridge", 1_000_000, &[]).commit();
    s.flush_all(&keys[..1]);
    s.flush_all(&keys);
    commit_rows(&mut s, 40_000);
    s.flush_all(&keys);
    assert_eq!(s.monitors.counts().change_sets, 2);
    (s, keys)
}

#[test]
fn what_somebody_far_behind_has_missed_is_put_together_elsewhere() {
    let (mut s, [first, second]) = behind_at_two_places();
    let before = s.monitors.counts().merged;
    let mut flushed = s.flush_within(&[second], STEP);
    assert!(flushed.updates.is_empty());
    let leaving = flushed.leaving.pop().expect("it costs more than a step");
    assert_eq!(leaving.keys, [first]);
    let bodies = leaving.work.compose(&|| {});
    let mut updates = Vec::new();
    s.monitors.take_late(leaving.id, bodies, s.store.schema(), &mut updates);
    assert_eq!(s.monitors.counts().merged, before, "nothing is put together here");
    assert_eq!(scene::message(&updates[0]).matches("insert").count(), 40_001);
    let rest = s.flush_all(&[]);
    assert_eq!(scene::message(&rest[0]).matches("insert").count(), 40_000);
    assert!(!s.monitors.has_pending());
}

#[test]
fn who_leaves_does_not_have_very_many_rows_put_together() {
    let (mut s, [first, second]) = behind_at_two_places();
    let before = s.monitors.counts().merged;
    s.remove(second);
    s.insert("Bridge", 1_000_001, &[]).commit();
    s.insert("Bridge", 1_000_002, &[]).commit();
    let merged = s.monitors.counts().merged - before;
    assert!(merged < 10, "{merged}");
    let update = s.flush_all(&[]).pop().expect("an update");
    assert_eq!((&update.to[..], s.monitors.has_pending()), (&[first][..], false));
    assert_eq!(scene::message(&update).matches("insert").count(), 40_003);
}

/// Rows that nobody is told of are not in the way of merging those of others.
#[test]
fn rows_of_tables_that_nobody_watches_take_no_memory_for_who_is_behind() {
    let mut s = Scene::new();
    let slow = s.add(V2, r#"{"Port":{}}"#);
    s.insert("Port", 1, &[]).commit();
    s.flush_all(&[slow]);
    let mut most = 0;
    for n in 0..10 {
        s.set("Port", 1, &[("n", &n.to_string())]);
        commit_rows(&mut s, 40_000);
        (0..40_000).for_each(|id| _ = s.delete("Bridge", id));
        s.commit();
        s.flush_all(&[slow]);
        most = most.max(s.monitors.pending_bytes());
    }
    assert!(most < 20_000_000, "{most} bytes pending for one changed row");
}

/// A load that writes the same rows again and again must not end the connection of who is behind.
#[test]
fn many_rows_that_change_again_and_again_are_merged_when_there_is_much_of_it() {
    let mut s = Scene::new();
    let name = Atom::string(&"x".repeat(600));
    for id in 1_000..21_000 {
        s.insert_named("Bridge", id, &name);
    }
    s.commit();
    let slow = s.add(V2, BRIDGES);
    let mut segments = 0;
    for n in 0..20 {
        for id in 1_000..21_000 {
            s.set("Bridge", id, &[("n", &n.to_string()), ("name", &format!("\"{n:0600}\""))]);
        }
        s.commit();
        s.flush_all(&[slow]);
        segments = segments.max(s.monitors.counts().change_sets);
        assert!(s.monitors.overflowed().is_empty());
    }
    assert!((2..10).contains(&segments), "{segments} of 20,000 rows");
}

#[test]
fn a_long_body_is_kept_until_the_last_who_may_need_it_has_left() {
    let mut s = Scene::new();
    let keys = equal_monitors(&mut s, 4);
    let other = s.add(V2, r#"{"Bridge":{"columns":["name"]}}"#);
    let long = Atom::string(&"x".repeat(200 << 10));
    s.insert_named("Bridge", 1, &long).commit();
    // All but one are behind.
    let behind = [keys[1], keys[2], keys[3], other];
    s.flush_all(&behind);
    s.insert("Bridge", 2, &[]).commit();
    s.flush_all(&behind);
    for key in &keys[1..3] {
        s.remove(*key);
        assert!(s.monitors.counts().cached_bytes > 0, "another one may need it");
    }
    s.remove(keys[3]);
    let kept = s.monitors.counts().cached_bytes;
    assert!(kept < 400 << 10, "{kept}: the other group's only");
    s.remove(other);
    assert_eq!((s.monitors.counts().cached_bytes, s.monitors.has_pending()), (0, false));
}

#[test]
fn a_reply_waits_for_what_its_session_changed_not_for_later_steps() {
    let mut s = Scene::new();
    let keys = fifty_groups(&mut s);
    commit_rows(&mut s, 100);
    let flushed = s.monitors.flush(&keys, &s.store, &|_| false, STEP);
    assert!(is_a_step(&flushed) && !flushed.has_more);
    let mut told: Vec<MonitorKey> =
        flushed.updates.into_iter().flat_map(|update| update.to).collect();
    assert!(told.len() >= 3);
    let [leaving] = &flushed.leaving[..] else { panic!("{:?}", flushed.leaving) };
    told.extend(&leaving.keys);
    assert_eq!(told, keys, "the step told some, a helper tells the others");
}

#[test]
fn who_composes_for_many_elsewhere_rests_in_between() {
    let rests = |is_many: bool| {
        let mut s = Scene::new();
        if is_many {
            fifty_groups(&mut s);
        } else {
            s.add(V2, BRIDGES);
        }
        commit_rows(&mut s, 600);
        let flushed = s.monitors.flush_all(&s.store, &|_| false, 1, false);
        assert!(flushed.updates.is_empty());
        let rests = Cell::new(0);
        for leaving in flushed.leaving {
            let bodies = leaving.work.compose(&|| rests.set(rests.get() + 1));
            s.monitors.take_late(leaving.id, bodies, s.store.schema(), &mut Vec::new());
        }
        assert!(!s.monitors.has_pending());
        rests.get()
    };
    let (one, many) = (rests(false), rests(true));
    assert!(many >= 5 && many >= 5 * one, "{one} and {many}");
}

/// The log has taken on so many quarters of its budget, of recorded changes and of all.
fn grow_older(scene: &mut Scene, recorded: u64, volatile: u64) {
    scene.monitors.grow_older(Ages { recorded, volatile });
}

#[test]
fn an_id_that_grows_old_is_renewed_in_one_message_for_all_equal_monitors() {
    let mut s = Scene::new();
    let columns = r#"{"Quiet":{"columns":["n"]}}"#;
    let quiet: Vec<_> = (0..50).map(|_| s.add(V3, columns)).collect();
    let with_versions = s.add(V3, r#"{"Quiet":{}}"#);
    let others = [s.add(V1, columns), s.add(V2, columns)];
    let told = s.add(V3, BRIDGES);
    grow_older(&mut s, 1, 1);
    assert!(!s.monitors.owes_ids() && s.flush_all(&[]).is_empty(), "it is not that old");
    s.insert("Bridge", 1, &[]).commit();
    assert_eq!(s.flush_all(&[]).len(), 1);
    grow_older(&mut s, 2, 2);
    let updates = s.flush_all(&[]);
    let to: Vec<_> = updates.iter().map(|update| update.to.clone()).collect();
    assert_eq!(to, [quiet, vec![with_versions]], "{others:?} have no ids, {told:?} is told");
    assert!(updates[0].body.ends_with(b"\",{}]}"));
    assert!(!s.monitors.owes_ids() && s.flush_all(&[]).is_empty(), "once");
    grow_older(&mut s, 2, 4);
    assert_eq!(s.flush_all(&[])[0].to, [with_versions], "only what is in no file has changed");
    grow_older(&mut s, 4, 6);
    assert_eq!(s.flush_all(&[]).len(), 3);
}

#[test]
fn an_id_is_renewed_behind_all_that_led_to_its_state() {
    let mut s = Scene::new();
    let keys = [s.add(V3, BRIDGES), s.add(V3, BRIDGES)];
    let apart = s.add(V3, r#"{"Bridge":{"columns":["n"],"where":[["n","==",7]]}}"#);
    s.insert("Bridge", 1, &[]).commit();
    grow_older(&mut s, 2, 2);
    let blocked = [keys[1], apart];
    let told = s.flush_all(&blocked);
    let empty = |update: &weir_monitor::Update| update.body.ends_with(b"\",{}]}");
    assert_eq!(told.iter().map(empty).collect::<Vec<_>>(), [false, true]);
    assert!(told.iter().all(|update| update.to == keys[..1]));
    assert!(s.flush_all(&blocked).is_empty() && s.monitors.owes_ids());
    s.insert("Bridge", 2, &[]).commit();
    let told = s.flush_all(&blocked[..1]);
    let to: Vec<_> = told.iter().map(|update| (&update.to[..], empty(update))).collect();
    assert_eq!(to, [(&keys[..1], false), (&[apart][..], true)]);
    let told = s.flush_all(&[]);
    let to: Vec<_> = told.iter().map(|update| (&update.to[..], empty(update))).collect();
    assert_eq!(to, [(&keys[1..], false), (&keys[1..], true)]);
    assert!(!s.monitors.owes_ids());
    grow_older(&mut s, 4, 4);
    s.remove(apart);
    s.remove(keys[0]);
    assert_eq!(s.flush_all(&[])[0].to, [keys[1]], "nobody is told who has left");
}

#[test]
fn clauses_of_many_monitors_that_end_at_once_are_taken_out_in_steps() {
    let mut s = Scene::new();
    let condition = |from: usize| {
        let clauses: Vec<String> =
            (from..from + 1000).map(|n| format!(r#"["n","==",{n}]"#)).collect();
        format!(r#"{{"Bridge":{{"columns":["n"],"where":[{}]}}}}"#, clauses.join(","))
    };
    let keys: Vec<MonitorKey> = (0..40).map(|n| s.add(V2, &condition(n))).collect();
    keys.into_iter().for_each(|key| s.remove(key));
    assert!(s.monitors.is_empty());
    // Who comes before all are out is told what concerns him, and of nobody who has gone.
    let key = s.add(V2, &condition(30));
    let mut steps = 0;
    while s.monitors.is_to_be_swept() {
        s.insert("Bridge", steps, &[("n", "30")]).commit();
        let updates = s.flush_all(&[]);
        assert_eq!(updates.iter().map(|update| &update.to[..]).collect::<Vec<_>>(), [[key]]);
        s.monitors.sweep();
        steps += 1;
    }
    assert!((4..=8).contains(&steps), "{steps} steps for 40,000 clauses");
    s.insert("Bridge", 1000, &[("n", "7")]).commit();
    assert!(s.flush_all(&[]).is_empty());
    assert_eq!(s.monitors.counts().composed, u64::try_from(steps).unwrap());
}
