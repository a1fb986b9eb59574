//! `transact`, `query` and `explain`.

use std::fmt::Write;
use std::process::ExitCode;

use weir_json::{Text, Value, object, validate};
use weir_table::Format;

use super::Client;
use super::info::finish;
use super::output::{print_json, print_value, write_all, write_failure};
use super::remote::open_database;
use super::session::Refusal;
use crate::program::{Failure, Outcome};

/// Runs the command `transact`.
pub(super) fn transact(client: &Client, args: &[String]) -> Outcome {
    let transaction = parse(args)?;
    let text = json(transaction)?;
    let mut params = vec![];
    text.write(&mut params);
    let mut session = open(client, args, text)?;
    client.begin_daemon()?;
    let pretty = client.options.style.pretty;
    finish(session.call_text("transact", &params, |result| print_json(result, pretty))?)
}

/// Runs the command `query`: a transaction with an `abort` behind it.
pub(super) fn query(client: &Client, args: &[String]) -> Outcome {
    let transaction = parse(args)?;
    let text = json(transaction)?;
    let mut elements = match text.to_value() {
        Value::Array(elements) => elements,
        _ => return Err(not_a_query()),
    };
    elements.push(object([("op", "abort".into())]));
    let operations = elements.len() - 1;
    let mut session = open(client, args, text)?;
    client.begin_daemon()?;
    let mut results = session.call("transact", Value::Array(elements))?;
    // If an earlier operation aborts, the last result is null.
    if let Value::Array(results) = &mut results
        && results.len() == operations
        && results.last().and_then(|last| last.get("error")?.as_str()) == Some("aborted")
    {
        results.pop();
    }
    finish(print_value(&results, client.options.style.pretty))
}

/// The name of the command `explain`.
pub(super) const EXPLAIN: &str = "explain";

/// Runs the command `explain`: how each operation would find its rows; nothing changes.
pub(super) fn explain(client: &Client, args: &[String]) -> Outcome {
    let text = json(parse(args)?)?;
    let mut session = open(client, args, text)?;
    let explained = session.call("weir_explain", text.to_value()).map_err(|refusal| {
        let why = match refusal {
            Refusal::Error(error) if error.as_str() == Some("unknown method") => {
                "it cannot explain: it is not Weir, or an older one".to_owned()
            }
            Refusal::Error(error) => error.to_string(),
            Refusal::Lost(lost) => lost.to_string(),
        };
        Failure::new(format!("the server: {why}"))
    })?;
    if client.options.style.format == Format::Json {
        return finish(print_value(&explained, client.options.style.pretty));
    }
    let mut out = String::new();
    for (at, operation) in explained.as_array().unwrap_or_default().iter().enumerate() {
        tell(&mut out, at + 1, operation);
    }
    write_all(out.as_bytes()).map_err(write_failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a line for an operation: its plan, rows looked at and found, the key that would help.
fn tell(out: &mut String, number: usize, operation: &Value) {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let count = |name: &str| operation.get(name).and_then(Value::as_i64);
    let _ = write!(out, "{number}: ");
    if let Some(error) = text("error") {
        let _ = write!(out, "{error}: {}", text("details").unwrap_or_default());
    } else if let Some(op) = text("op") {
        out.push_str(op);
        if let (Some(table), Some(plan)) = (text("table"), text("plan")) {
            let _ = write!(out, " {table}: {plan}");
            let columns = operation.get("columns").and_then(Value::as_array).unwrap_or_default();
            let columns: Vec<&str> = columns.iter().filter_map(Value::as_str).collect();
            if !columns.is_empty() {
                let _ = write!(out, " by {}", columns.join(", "));
            }
            if let Some(kind) = text("kind") {
                let _ = write!(out, " ({kind} key)");
            }
            let _ = write!(out, ", {} rows looked at", count("looked_at").unwrap_or_default());
            if let Some(found) = count("found") {
                let _ = write!(out, ", {found} found");
            }
        }
        if let Some(key) = operation.get("key") {
            let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or("?");
            let _ = write!(out, "; {} key on {} would help", text("kind"), text("column"));
        }
    } else {
        out.push_str("not reached");
    }
    out.push('\n');
}

/// The last argument is the transaction.
fn parse(args: &[String]) -> Result<&str, Failure> {
    args.last().map(String::as_str).ok_or_else(not_a_query)
}

fn json(transaction: &str) -> Result<Text<'_>, Failure> {
    validate(transaction.as_bytes())
        .map_err(|error| Failure::new(format!("\"{transaction}\": {error}")))
}

fn not_a_query() -> Failure {
    Failure::new("not a valid OVSDB query").hint("it is [\"DATABASE\", OPERATION, ...]")
}

/// Connects to the server, which must have the database that the transaction names.
fn open(
    client: &Client,
    args: &[String],
    transaction: Text<'_>,
) -> Result<super::session::Session, Failure> {
    let database = transaction.elements().and_then(|mut elements| elements.next()?.str());
    let Some(database) = database else { return Err(not_a_query()) };
    let mut session = open_database(client, args, 1, Some(&database))?.session;
    if client.options.db_change_aware == Some(true) {
        session.call("set_db_change_aware", Value::Array(vec![true.into()]))?;
    }
    Ok(session)
}

/// The results of a transaction of so many operations.
pub(super) fn results_of<'a>(
    reply: Text<'a>,
    count: usize,
) -> Result<impl Iterator<Item = Text<'a>> + use<'a>, Failure> {
    let wrong =
        || Failure::new(format!("reply is not array of {count} elements: {}", reply.to_value()));
    let results = reply.elements().filter(|results| results.clone().count() == count);
    results.ok_or_else(wrong)
}

/// The rows that were selected from a table.
pub(super) fn rows_of<'a>(
    result: Option<Text<'a>>,
    table: &str,
) -> Result<impl Iterator<Item = Text<'a>> + use<'a>, Failure> {
    let rows = result.and_then(|result| result.object()?.get("rows")?.elements());
    rows.ok_or_else(|| {
        let reply = result.map_or(Value::Null, Text::to_value);
        Failure::new(format!(
            "{table} table reply is not an object with a \"rows\" member array: {reply}"
        ))
    })
}
