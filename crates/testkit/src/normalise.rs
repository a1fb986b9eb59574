//! Makes the answers of two servers comparable: which UUID of one is which of the other.
//!
//! Side A is the reference and its UUIDs are the names everybody speaks of; what is sent to side B
//! and what comes from it is translated. Most UUIDs are given by the generator and are the same on
//! both sides; the others (rows inserted without one, `_version`) are learned in pairs and must then
//! stay a one-to-one correspondence.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

/// The length of a UUID in text.
const UUID_LEN: usize = 36;

/// What is known about the UUIDs of the two sides.
#[derive(Clone, Debug, Default)]
pub struct Correspondence {
    to_b: HashMap<String, String>,
    to_a: HashMap<String, String>,
    given: HashSet<String>,
}

impl Correspondence {
    /// Declares a UUID that was sent to both sides alike.
    pub fn give(&mut self, uuid: &str) {
        self.given.insert(uuid.to_owned());
    }

    /// Declares every UUID in `text` as [`Self::give`] does, unless it is known already.
    pub fn give_all(&mut self, text: &str) {
        replace_uuids(text, |uuid| {
            if !self.to_b.contains_key(uuid) {
                self.given.insert(uuid.to_owned());
            }
            None
        });
    }

    /// Declares that `a` of one side is `b` of the other; false when either is taken already.
    pub fn learn(&mut self, a: &str, b: &str) -> bool {
        if a == b && !self.to_b.contains_key(a) && !self.to_a.contains_key(b) {
            self.given.insert(a.to_owned());
            return true;
        }
        if self.given.contains(a) || self.given.contains(b) {
            return a == b;
        }
        match (self.to_b.get(a), self.to_a.get(b)) {
            (None, None) => {
                self.to_b.insert(a.to_owned(), b.to_owned());
                self.to_a.insert(b.to_owned(), a.to_owned());
                true
            }
            (known_b, known_a) => {
                known_b.is_some_and(|known| known == b) && known_a.is_some_and(|known| known == a)
            }
        }
    }

    /// Text in A's UUIDs as B must read it.
    pub fn for_b(&self, text: &str) -> String {
        replace_uuids(text, |uuid| self.to_b.get(uuid).map(String::as_str))
    }

    /// Text that B wrote, in A's UUIDs.
    pub fn from_b(&self, text: &str) -> String {
        replace_uuids(text, |uuid| self.to_a.get(uuid).map(String::as_str))
    }

    fn is_known_a(&self, uuid: &str) -> bool {
        self.given.contains(uuid) || self.to_b.contains_key(uuid)
    }

    /// Compares an answer of A with an answer of B, both in A's UUIDs where known.
    ///
    /// Order does not matter for object members, for the elements of an array named `rows` (unless
    /// `sorted`), and in sets and maps for UUIDs that the servers chose. The error says where and how.
    ///
    /// # Errors
    /// The path and the two values of the first difference.
    pub fn compare(&mut self, a: &Value, b: &Value, sorted: bool) -> Result<(), String> {
        let (pairs, rows_known) = (HashMap::new(), false);
        Comparison { known: self, pairs, sorted, rows_known }.values(a, b, "")
    }

    /// [`Self::compare`] for a committed row; UUIDs met for the first time are remembered.
    ///
    /// # Errors
    /// As [`Self::compare`].
    pub fn compare_row(&mut self, a: &Value, b: &Value) -> Result<(), String> {
        let (pairs, rows_known) = (HashMap::new(), true);
        let mut comparison = Comparison { known: self, pairs, sorted: true, rows_known };
        comparison.values(a, b, "")?;
        let pairs = comparison.pairs;
        match pairs.iter().find(|(a, b)| !self.learn(a, b)) {
            Some((a, b)) => Err(format!(": {a} cannot be {b}")),
            None => Ok(()),
        }
    }

    /// [`Self::compare`] for the notifications of a monitor, where every row is under its UUID.
    ///
    /// # Errors
    /// As [`Self::compare`].
    pub fn compare_updates(&mut self, a: &Value, b: &Value) -> Result<(), String> {
        let (pairs, sorted, rows_known) = (HashMap::new(), true, true);
        Comparison { known: self, pairs, sorted, rows_known }.values(a, b, "")
    }
}

/// The state of one comparison: UUIDs nobody has seen before are paired as they are met.
struct Comparison<'a> {
    known: &'a mut Correspondence,
    pairs: HashMap<String, String>,
    sorted: bool,
    rows_known: bool,
}

impl Comparison<'_> {
    fn values(&mut self, a: &Value, b: &Value, path: &str) -> Result<(), String> {
        match (a, b) {
            (Value::Object(_), Value::Object(_)) => self.objects(a, b, path),
            (Value::Array(x), Value::Array(y)) => self.arrays(x, y, path),
            (Value::String(x), Value::String(y)) => self.strings(x, y, path),
            _ if a == b => Ok(()),
            _ => Err(differ(path, a, b)),
        }
    }

    fn objects(&mut self, a: &Value, b: &Value, path: &str) -> Result<(), String> {
        let (Value::Object(x), Value::Object(y)) = (a, b) else { return Ok(()) };
        let row_known =
            self.rows_known || x.get("_uuid").is_some_and(|uuid| Some(uuid) == y.get("_uuid"));
        for (key, value) in x {
            let at = format!("{path}.{key}");
            match y.get(key) {
                Some(other) if key == "_version" => self.versions(value, other, row_known, &at)?,
                Some(other) => self.values(value, other, &at)?,
                None => return Err(format!("{at}: only in A: {value}")),
            }
        }
        match y.iter().find(|(key, _)| !x.contains_key(*key)) {
            Some((key, value)) => Err(format!("{path}.{key}: only in B: {value}")),
            None => Ok(()),
        }
    }

    /// A version is checked where the row is known: it must change on both sides or on neither.
    fn versions(&mut self, a: &Value, b: &Value, known: bool, path: &str) -> Result<(), String> {
        match (a[1].as_str(), b[1].as_str()) {
            (Some(x), Some(y)) if !known && is_uuid(x) && is_uuid(y) => Ok(()),
            (Some(x), Some(y)) if x == y => Ok(()),
            (Some(x), Some(y)) if self.known.learn(x, y) => Ok(()),
            _ => Err(format!("{path}: changed on one side only: {a} against {b}")),
        }
    }

    fn arrays(&mut self, a: &[Value], b: &[Value], path: &str) -> Result<(), String> {
        if a.len() != b.len() {
            return Err(differ(path, &a.to_vec().into(), &b.to_vec().into()));
        }
        let rows = path.ends_with(".rows") && !self.sorted;
        let collection = a.len() == 2 && a[0] == b[0] && (a[0] == "set" || a[0] == "map");
        if rows || (collection && self.has_learned(&a[1])) {
            let (a, b) = if rows { (a, b) } else { (elements(&a[1]), elements(&b[1])) };
            if a.len() != b.len() {
                return Err(differ(path, &a.to_vec().into(), &b.to_vec().into()));
            }
            let (a, b) = (self.in_order(a), self.in_order(b));
            if !rows && a.iter().any(|element| self.has_unknown(element)) {
                // Several unknown UUIDs in a set cannot be told apart: equal but for them will do.
                let same = a.iter().zip(&b).all(|(x, y)| self.sort_key(x) == self.sort_key(y));
                return if same { Ok(()) } else { Err(differ(path, &json!(a), &json!(b))) };
            }
            return self.pairwise(&a, &b, path);
        }
        let (a, b): (Vec<_>, Vec<_>) = (a.iter().collect(), b.iter().collect());
        self.pairwise(&a, &b, path)
    }

    fn pairwise(&mut self, a: &[&Value], b: &[&Value], path: &str) -> Result<(), String> {
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            self.values(x, y, &format!("{path}[{i}]"))?;
        }
        Ok(())
    }

    /// True when a UUID that the servers chose is among the elements: their order is then chance.
    fn has_learned(&self, elements: &Value) -> bool {
        let mut learned = false;
        replace_uuids(&elements.to_string(), |uuid| {
            learned |= !self.known.given.contains(uuid);
            None
        });
        learned
    }

    fn has_unknown(&self, value: &Value) -> bool {
        uuids(&value.to_string()).iter().any(|uuid| !self.known.is_known_a(uuid))
    }

    fn in_order<'v>(&self, values: &'v [Value]) -> Vec<&'v Value> {
        let mut keyed: Vec<_> = values.iter().map(|value| (self.sort_key(value), value)).collect();
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        keyed.into_iter().map(|(_, value)| value).collect()
    }

    /// Text that says the same for equal values of both sides, whatever their order.
    fn sort_key(&self, value: &Value) -> String {
        let text = canonical(&value.to_string(), |uuid| !self.known.is_known_a(uuid));
        text.unwrap_or_default()
    }

    /// Text equal but for UUIDs nobody has seen, which must pair up one to one.
    fn strings(&mut self, a: &str, b: &str, path: &str) -> Result<(), String> {
        if a == b {
            return Ok(());
        }
        let (in_a, in_b) = (uuids(a), uuids(b));
        let blank = |text: &str| replace_uuids(text, |_| Some("?"));
        let mut same = in_a.len() == in_b.len() && blank(a) == blank(b);
        for (x, y) in in_a.iter().zip(&in_b) {
            same = same && (x == y || self.pair(x, y));
        }
        if same { Ok(()) } else { Err(format!("{path}:\n    A {a}\n    B {b}")) }
    }

    fn pair(&mut self, a: &str, b: &str) -> bool {
        if self.known.is_known_a(a) || self.known.is_known_a(b) {
            return false;
        }
        *self.pairs.entry(a.to_owned()).or_insert_with(|| b.to_owned()) == b
    }
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn differ(path: &str, a: &Value, b: &Value) -> String {
    format!("{path}:\n    A {a}\n    B {b}")
}

/// Takes rows that did not change out of an `update2` or `update3`; false when nothing is left.
///
/// The reference tells of such rows when a column changes that only the condition of *another*
/// monitor of the same columns reads. Clients cannot tell the difference.
pub fn without_empty_modifications(message: &mut Value) -> bool {
    let at = match message["method"].as_str() {
        Some("update2") => 1,
        Some("update3") => 2,
        _ => return true,
    };
    let Some(tables) = message["params"][at].as_object_mut() else { return true };
    let before = tables.len();
    for rows in tables.values_mut().filter_map(Value::as_object_mut) {
        rows.retain(|_, row| {
            row.get("modify").and_then(Value::as_object).is_none_or(|row| !row.is_empty())
        });
    }
    tables.retain(|_, rows| rows.as_object().is_none_or(|rows| !rows.is_empty()));
    before == 0 || !tables.is_empty()
}

/// Takes the id of the state out of a reply to `monitor_cond_since` and out of an `update3`; false for
/// one that says nothing else. The reference's ids of standalone databases are always zero.
pub fn without_ids(message: &mut Value) -> bool {
    if message["method"] == "update3" {
        message["params"][1].take();
        return message["params"][2].as_object().is_none_or(|tables| !tables.is_empty());
    }
    if let Some([Value::Bool(_), id, Value::Object(_)]) =
        message["result"].as_array_mut().map(Vec::as_mut_slice)
    {
        id.take();
    }
    true
}

/// JSON text with sorted keys, sorted sets and maps, UUIDs blanked where `unknown`, without
/// `_version`; None for what is not JSON.
pub fn canonical(text: &str, unknown: impl Fn(&str) -> bool) -> Option<String> {
    let text = replace_uuids(text, |uuid| unknown(uuid).then_some("?"));
    let mut out = String::new();
    write_canonical(&serde_json::from_str(&text).ok()?, &mut out);
    Some(out)
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<_> = members.keys().filter(|key| *key != "_version").collect();
            keys.sort();
            for key in keys {
                out.push_str(key);
                out.push(':');
                write_canonical(&members[key], out);
            }
        }
        Value::Array(values) if values.len() == 2 && (values[0] == "set" || values[0] == "map") => {
            let mut texts = vec![];
            for value in elements(&values[1]) {
                let mut text = String::new();
                write_canonical(value, &mut text);
                texts.push(text);
            }
            texts.sort();
            out.push_str(&texts.join(";"));
        }
        Value::Array(values) => {
            for value in values {
                write_canonical(value, out);
                out.push(',');
            }
        }
        _ => out.push_str(&value.to_string()),
    }
    out.push('|');
}

/// True for the 36 characters of a UUID in lower case.
pub fn is_uuid(text: &str) -> bool {
    text.len() == UUID_LEN && uuid_at(text.as_bytes(), 0)
}

fn uuid_at(text: &[u8], start: usize) -> bool {
    let Some(window) = text.get(start..start + UUID_LEN) else { return false };
    window.iter().enumerate().all(|(i, byte)| match i {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    })
}

fn find_uuid(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        // A dash is rare, a hexadecimal digit is not.
        let dash = at + 8 + bytes.get(at + 8..)?.iter().position(|byte| *byte == b'-')?;
        if uuid_at(bytes, dash - 8) {
            return Some(dash - 8);
        }
        at = dash - 7;
    }
}

/// The UUIDs in `text`, in order.
pub fn uuids(text: &str) -> Vec<String> {
    let mut found = vec![];
    replace_uuids(text, |uuid| {
        found.push(uuid.to_owned());
        None
    });
    found
}

/// `text` with UUIDs replaced where `replace` says by what.
pub fn replace_uuids<'r>(text: &str, mut replace: impl FnMut(&str) -> Option<&'r str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    while let Some(start) = find_uuid(text, done) {
        let uuid = &text[start..start + UUID_LEN];
        out.push_str(&text[done..start]);
        out.push_str(replace(uuid).unwrap_or(uuid));
        done = start + UUID_LEN;
    }
    out.push_str(&text[done..]);
    out
}

/// `text` with its UUIDs named `<0>`, `<1>`, … by first appearance.
pub fn number_uuids(text: &str, seen: &mut Vec<String>) -> String {
    let found = uuids(text);
    for uuid in found {
        if !seen.contains(&uuid) {
            seen.push(uuid);
        }
    }
    let names: Vec<String> = (0..seen.len()).map(|i| format!("<{i}>")).collect();
    replace_uuids(text, |uuid| {
        let at = seen.iter().position(|known| known == uuid)?;
        names.get(at).map(String::as_str)
    })
}
