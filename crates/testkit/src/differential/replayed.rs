//! A second reference server brought to the state of a moment ago, to ask what else could be right.

use serde_json::{Map, Value, json};

use crate::client::{Client, Trouble};
use crate::dump::Dump;
use crate::files;
use crate::generate::Schema;
use crate::generate::transaction::{HELD_LOCK, params_text, request_bytes};
use crate::normalise::replace_uuids;
use crate::process::{Program, Scratch, Server};

/// What led to the current state.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The content at the last look at the whole database.
    pub before: Dump,
    /// The transactions since the last look.
    pub since: Vec<Vec<Value>>,
}

/// A server of its own that holds what a [`History`] leads to, to try further transactions on.
#[derive(Debug)]
pub struct ReplayedServer {
    /// A session that holds the lock.
    pub session: Client,
    db: String,
    _server: Server,
    _scratch: Scratch,
}

impl ReplayedServer {
    /// Starts `program` and plays `history` to it.
    ///
    /// # Errors
    /// When the server does not start.
    pub fn open(program: &Program, schema: &Schema, history: &History) -> Result<Self, Trouble> {
        let scratch = Scratch::new("replayed");
        let file = scratch.file("replayed.db");
        files::create(&file, &schema.json())?;
        let server = Server::start(program, std::slice::from_ref(&file))?;
        let session = server.connect()?;
        let db = schema.name.clone();
        let mut replayed = Self { session, db, _server: server, _scratch: scratch };
        replayed.session.request("lock", &json!([HELD_LOCK]))?;
        if history.before.rows().next().is_some() {
            replayed.transact(&history.before.insertions())?;
        }
        for ops in &history.since {
            replayed.transact(ops)?;
        }
        Ok(replayed)
    }

    /// The result of a generated transaction.
    ///
    /// # Errors
    /// When the session ends.
    pub fn transact(&mut self, ops: &[Value]) -> Result<Value, Trouble> {
        let id = self.session.fresh_id();
        let request = request_bytes("transact", &params_text(&self.db, ops), id);
        self.session.send_raw(&request)?;
        Ok(self.session.reply(id)?.value["result"].take())
    }
}

/// Whether `told` is what an operation answers if, of the many things wrong in it, others are met
/// first: other rows, other columns.
///
/// # Errors
/// When the session ends.
pub fn is_choice(
    replayed: &mut ReplayedServer,
    ops: &[Value],
    at: usize,
    told: &Value,
) -> Result<bool, Trouble> {
    let Some(op) = ops.get(at) else { return Ok(false) };
    let wanted = sentence(told);
    let mut candidates = by_column(op);
    candidates.push(op.clone());
    for candidate in candidates {
        for variant in by_row(replayed, &ops[..at], &candidate)? {
            // Alone as well: an earlier operation may depend on versions, which the replayed has not.
            for start in [0, at] {
                let mut attempt = ops[start..at].to_vec();
                attempt.extend([variant.clone(), json!({"op": "abort"})]);
                if sentence(&replayed.transact(&attempt)?[at - start]) == wanted {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn sentence(error: &Value) -> String {
    let details = error["details"].as_str().unwrap_or_default();
    format!("{} {}", error["error"], replace_uuids(details, |_| Some("U")))
}

/// The operation with one column, or one mutation, at a time.
fn by_column(op: &Value) -> Vec<Value> {
    let mut variants = vec![];
    let mut with = |member: &str, value: Value| {
        let mut variant = op.clone();
        variant[member] = value;
        variants.push(variant);
    };
    for (name, value) in op["row"].as_object().into_iter().flatten() {
        with("row", Value::Object(Map::from_iter([(name.clone(), value.clone())])));
    }
    for row in op["rows"].as_array().into_iter().flatten() {
        for (name, value) in row.as_object().into_iter().flatten() {
            with("rows", json!([{name.as_str(): value}]));
        }
    }
    variants
}

/// The operation on one row at a time, and as it is.
fn by_row(
    replayed: &mut ReplayedServer,
    before: &[Value],
    op: &Value,
) -> Result<Vec<Value>, Trouble> {
    let mut variants = vec![op.clone()];
    let (Some(table), Some(clauses)) = (op["table"].as_str(), op["where"].as_array()) else {
        return Ok(variants);
    };
    let select = json!({"op": "select", "table": table, "where": [], "columns": ["_uuid"]});
    let mut rows = vec![];
    // The earlier operations may fail here where they did not there, or insert what is looked for.
    for start in [0, before.len()] {
        let mut ops = before[start..].to_vec();
        ops.extend([select.clone(), json!({"op": "abort"})]);
        let mut result = replayed.transact(&ops)?;
        if let Value::Array(found) = result[before.len() - start]["rows"].take() {
            rows.extend(found.into_iter().filter(|row| !rows.contains(row)).collect::<Vec<_>>());
        }
    }
    for row in rows {
        let mut variant = op.clone();
        let mut narrowed = clauses.clone();
        narrowed.push(json!(["_uuid", "==", row["_uuid"]]));
        variant["where"] = Value::Array(narrowed);
        variants.push(variant);
    }
    Ok(variants)
}
