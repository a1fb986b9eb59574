//! The status as text for people.

use weir_json::Value;

/// Most sessions shown; the server tells those that are furthest behind first.
const SESSIONS_SHOWN: usize = 20;

/// Rounds of the loop that take so long, in microseconds, are worth a word.
const SLOW_ROUND_US: i64 = 50_000;

/// Work that takes so long, in milliseconds, is worth a word.
const SLOW_WORK_MS: i64 = 1000;

/// So many bytes that a client has not read, or has not been told, are worth a word.
const FAR_BEHIND_BYTES: i64 = 1 << 20;

/// The screen that shows a server's status.
pub(super) fn draw(target: &str, status: &Value) -> String {
    let mut text = process(target, status);
    text.push('\n');
    text += &columns(&databases(status));
    text.push('\n');
    if let Some(keys) = keys(status) {
        text += &columns(&keys);
        text.push('\n');
    }
    text += &columns(&sessions(status));
    let (total, shown) = (number(status, "sessions_total"), list(status, "sessions").len());
    let hidden = total - shown.min(SESSIONS_SHOWN) as i64;
    if hidden > 0 {
        text += &format!("and {hidden} more\n");
    }
    text += "\nSLOW\n";
    let slow = slow(status);
    if slow.is_empty() {
        text += "nothing\n";
    }
    slow.iter().for_each(|line| text += &format!("{}\n", plain(line)));
    text
}

fn process(target: &str, status: &Value) -> String {
    let null = Value::Null;
    let process = status.get("process").unwrap_or(&null);
    let monitors: i64 = list(status, "databases").iter().map(|db| number(db, "monitors")).sum();
    format!(
        "{}: memory {}, {} sessions, {monitors} monitors, {} queued for clients\n\
         longest stall: {} in the last minute, {} since the start\n",
        plain(target),
        bytes(number(process, "resident_bytes")),
        number(status, "sessions_total"),
        bytes(number(process, "queued_bytes")),
        millis(number(process, "stall_us")),
        millis(number(process, "stall_ever_us")),
    )
}

fn databases(status: &Value) -> Vec<Vec<String>> {
    let head = ["DATABASE", "ROWS", "FILE", "RECORDS", "MONITORS", "PENDING", "WAITING", "STATE"];
    let row = |db: &Value| {
        let file = db.get("file").filter(|file| **file != Value::Null);
        let of_file = |key: &str, show: fn(i64) -> String| {
            file.map_or("-".to_owned(), |file| show(number(file, key)))
        };
        vec![
            word(db, "name"),
            db.get("rows").and_then(Value::as_i64).map_or("-".to_owned(), |rows| rows.to_string()),
            of_file("size", bytes),
            of_file("records", |count| count.to_string()),
            number(db, "monitors").to_string(),
            bytes(number(db, "pending_bytes")),
            number(db, "waiting").to_string(),
            state(db, file),
        ]
    };
    with_head(&head, list(status, "databases").iter().map(row))
}

/// The keys on columns, if there are any.
fn keys(status: &Value) -> Option<Vec<Vec<String>>> {
    let head = ["KEY", "KIND", "WANTED BY", "ENTRIES", "MEMORY", "ROWS SAVED", "STATE"];
    let row = |db: &Value, key: &Value| {
        vec![
            format!("{} {} {}", word(db, "name"), word(key, "table"), word(key, "column")),
            word(key, "kind"),
            word(key, "wanted_by"),
            number(key, "entries").to_string(),
            bytes(number(key, "bytes")),
            number(key, "rows_saved").to_string(),
            word(key, "state"),
        ]
    };
    let dbs = list(status, "databases").iter();
    let rows: Vec<Vec<String>> =
        dbs.flat_map(|db| list(db, "keys").iter().map(|key| row(db, key))).collect();
    (!rows.is_empty()).then(|| with_head(&head, rows.into_iter()))
}

fn state(db: &Value, file: Option<&Value>) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let mut states = Vec::new();
    if let Some(fault) = text(file.and_then(|file| file.get("fault"))) {
        states.push(format!("cannot be written: {fault}"));
    }
    let has = |key: &str| file.and_then(|file| file.get(key)?.as_i64()).is_some();
    let is = |key: &str| db.get(key).and_then(Value::as_bool) == Some(true);
    let others = [
        (has("compacting_ms"), "compacting"),
        (is("conversion"), "converting"),
        (is("is_backup"), "backup"),
        (db.get("rows") == Some(&Value::Null), "long transaction"),
    ];
    states.extend(others.iter().filter(|(is, _)| *is).map(|(_, what)| (*what).to_owned()));
    if let Some(relay) = db.get("relay").filter(|relay| **relay != Value::Null) {
        states.push(match number(relay, "behind_ms") {
            0 => format!("relay of {}", word(relay, "source")),
            behind => format!("relay, not told anything for {} by its source", seconds(behind)),
        });
    }
    if states.is_empty() { "ok".to_owned() } else { states.join(", ") }
}

fn sessions(status: &Value) -> Vec<Vec<String>> {
    let head = ["SESSION", "REMOTE", "MONITORS", "LOCKS", "QUEUED", "SILENT", "STATE"];
    let row = |session: &Value| {
        let is = |key: &str| session.get(key).and_then(Value::as_bool) == Some(true);
        let behind = number(session, "queued_bytes") > 0;
        let states = [
            (is("held"), "waits for work"),
            (behind, "does not read"),
            (is("read_only"), "read-only"),
        ];
        let states: Vec<&str> =
            states.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
        vec![
            word(session, "name"),
            word(session, "remote"),
            number(session, "monitors").to_string(),
            number(session, "locks").to_string(),
            bytes(number(session, "queued_bytes")),
            format!("{} s", number(session, "silent_ms") / 1000),
            if states.is_empty() { "ok".to_owned() } else { states.join(", ") },
        ]
    };
    with_head(&head, list(status, "sessions").iter().take(SESSIONS_SHOWN).map(row))
}

/// What an operator should look at.
fn slow(status: &Value) -> Vec<String> {
    let null = Value::Null;
    let mut lines = Vec::new();
    let process = status.get("process").unwrap_or(&null);
    let stall = number(process, "stall_us");
    if stall >= SLOW_ROUND_US {
        lines.push(format!("all clients waited for {} in the last minute", millis(stall)));
    }
    let (kept, most) = (number(process, "kept_bytes"), number(process, "kept_bytes_max"));
    if kept > most / 2 {
        let sessions = list(status, "sessions").iter();
        let greedy = sessions.max_by_key(|session| number(session, "kept_bytes"));
        let name = greedy.map_or("-".to_owned(), |session| word(session, "name"));
        let (kept, most) = (bytes(kept), bytes(most));
        lines.push(format!(
            "clients' monitors, locks and waiting transactions take {kept} of {most}, {name}'s most"
        ));
    }
    for work in list(status, "work").iter().filter(|work| number(work, "age_ms") >= SLOW_WORK_MS) {
        let (what, age) = (word(work, "what"), seconds(number(work, "age_ms")));
        let (session, db) = (word(work, "session"), word(work, "database"));
        lines.push(format!("{session}: {what} on {db} for {age} so far"));
    }
    for db in list(status, "databases") {
        let name = word(db, "name");
        let file = db.get("file").unwrap_or(&null);
        let compacting = number(file, "compacting_ms");
        if compacting >= SLOW_WORK_MS {
            lines.push(format!("{name}: compaction for {} so far", seconds(compacting)));
        }
        if number(db, "pending_bytes") >= FAR_BEHIND_BYTES {
            let pending = bytes(number(db, "pending_bytes"));
            lines.push(format!("{name}: {pending} of changes that clients have not been told"));
        }
        if let Some(fault) = file.get("fault").and_then(Value::as_str) {
            lines.push(format!("{name}: the file cannot be written ({fault})"));
        }
    }
    for session in list(status, "sessions") {
        let queued = number(session, "queued_bytes");
        if queued >= FAR_BEHIND_BYTES {
            lines.push(format!("{}: has not read {}", word(session, "name"), bytes(queued)));
        }
    }
    lines
}

fn with_head(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let head = head.iter().map(|&word| word.to_owned()).collect();
    std::iter::once(head).chain(rows).collect()
}

/// Cells under each other, two spaces apart.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        // Names have any length; a width of `format!` has not.
        let padded = |(cell, width): (&String, &usize)| {
            let missing = width.saturating_sub(cell.chars().count());
            [cell.as_str(), &" ".repeat(missing)].concat()
        };
        let cells = row.iter().zip(&widths).map(padded);
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).unwrap_or_default()
}

fn number(value: &Value, key: &str) -> i64 {
    value.get(key).and_then(Value::as_i64).unwrap_or(0)
}

/// A text, or a dash.
fn word(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    plain(text.unwrap_or("-"))
}

/// Without what would move the cursor: a remote is what somebody has written into a table.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn bytes(count: i64) -> String {
    match count {
        ..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} kB", count as f64 / 1024.0),
        _ => format!("{:.1} MB", count as f64 / 1_048_576.0),
    }
}

fn millis(micros: i64) -> String {
    format!("{:.1} ms", micros as f64 / 1000.0)
}

fn seconds(millis: i64) -> String {
    format!("{:.1} s", millis as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{
        "databases":[{"name":"Net","rows":300,"monitors":2,"pending_bytes":2097152,"waiting":1,
            "conversion":false,"is_backup":false,"relay":{"behind_ms":7000,"source":"tcp:192.0.2.1:6642"},
            "file":{"size":4096,"records":3,"compacting_ms":2500,"fault":"No space left on device"}}],
        "sessions":[{"name":"tcp:192.0.2.7:4711","remote":"ptcp:6641\u001b[2J","monitors":2,"locks":0,
            "queued_bytes":3145728,"silent_ms":12000,"held":true,"read_only":false}],
        "sessions_total":4000,
        "work":[{"what":"write","database":"Net","session":"unix#7","age_ms":3200}],
        "process":{"resident_bytes":7340032,"kept_bytes":2097152,"kept_bytes_max":3145728,"queued_bytes":3145728,"stall_us":81000,
            "stall_ever_us":90000}}"#;

    #[test]
    fn one_screen_with_what_is_slow() {
        let screen = draw("ovsdb-server", &Value::parse(STATUS.as_bytes()).unwrap());
        let expected = "\
ovsdb-server: memory 7.0 MB, 4000 sessions, 2 monitors, 3.0 MB queued for clients
longest stall: 81.0 ms in the last minute, 90.0 ms since the start

DATABASE  ROWS  FILE    RECORDS  MONITORS  PENDING  WAITING  STATE
Net       300   4.0 kB  3        2         2.0 MB   1        cannot be written: No space left on device, compacting, relay, not told anything for 7.0 s by its source

SESSION             REMOTE         MONITORS  LOCKS  QUEUED  SILENT  STATE
tcp:192.0.2.7:4711  ptcp:6641?[2J  2         0      3.0 MB  12 s    waits for work, does not read
and 3999 more

SLOW
all clients waited for 81.0 ms in the last minute
clients' monitors, locks and waiting transactions take 2.0 MB of 3.0 MB, tcp:192.0.2.7:4711's most
unix#7: write on Net for 3.2 s so far
Net: compaction for 2.5 s so far
Net: 2.0 MB of changes that clients have not been told
Net: the file cannot be written (No space left on device)
tcp:192.0.2.7:4711: has not read 3.0 MB
";
        assert_eq!(screen, expected);
    }

    #[test]
    fn a_quiet_server_and_an_odd_answer() {
        let screen = draw("x", &Value::Null);
        assert!(screen.ends_with("SLOW\nnothing\n"), "{screen}");
    }
}
