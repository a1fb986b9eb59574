//! `convert` and `needs-conversion`: a schema from a file and the schema of a database.

use std::process::ExitCode;

use weir_data::Schema;
use weir_json::{Value, array};

use super::Client;
use super::output::{write_all, write_failure};
use super::remote::{Target, open_database};
use super::schema;
use super::session::{Refusal, Session, select, transaction};
use crate::program::{Failure, Outcome};
use crate::progress::Waiting;

/// What a member of a cluster answers to a schema with ephemeral columns.
const NO_EPHEMERAL: &str = "clustered databases do not support ephemeral columns";

/// Runs the command `convert`.
pub(super) fn convert(client: &Client, args: &[String]) -> Outcome {
    let (schema, mut wanted, mut session) = open(client, args)?;
    let model = model(&mut session, &schema.name)?;
    if model.as_deref() == Some("clustered") {
        make_columns_persistent(&mut wanted);
    }
    // A server that does not know of keys refuses these members, and says which.
    schema.keys.iter().for_each(|wish| wish.add_to(&mut wanted));
    session.call("set_db_change_aware", Value::Array(vec![true.into()]))?;
    let _waiting = Waiting::new("convert");
    let mut convert = |wanted: Value| {
        session.call("convert", Value::Array(vec![schema.name.as_str().into(), wanted]))
    };
    match convert(wanted.clone()) {
        // A relay does not say whether its source is one of a cluster, and the source does.
        Err(Refusal::Error(why))
            if model.as_deref() == Some("relay") && why.to_string().contains(NO_EPHEMERAL) =>
        {
            make_columns_persistent(&mut wanted);
            convert(wanted)?;
        }
        converted => _ = converted?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command `needs-conversion`.
pub(super) fn needs_conversion(client: &Client, args: &[String]) -> Outcome {
    let (Schema { name, .. }, given, mut session) = open(client, args)?;
    let model = model(&mut session, &name)?;
    let has = schema::fetch(&mut session, &name)?;
    let mut persistent = given.clone();
    make_columns_persistent(&mut persistent);
    let fitting = match model.as_deref() {
        Some("clustered") => vec![persistent],
        // Its source may be one of a cluster.
        Some("relay") => vec![given, persistent],
        _ => vec![given],
    };
    let mut answer = "yes\n";
    for wanted in fitting {
        let wanted = Schema::parse_bytes(wanted.to_string().as_bytes()).map_err(Failure::new)?;
        if wanted == has {
            answer = "no\n";
        }
    }
    write_all(answer.as_bytes()).map_err(write_failure)?;
    Ok(ExitCode::SUCCESS)
}

/// The schema that the last argument names, also as JSON, and a session with the server of its
/// database.
fn open(client: &Client, args: &[String]) -> Result<(Schema, Value, Session), Failure> {
    let file = args.last().map(String::as_str).unwrap_or_default();
    let (schema, _) = schema::read_file(file)?;
    let Target { session, .. } = open_database(client, args, 1, Some(&schema.name))?;
    let value = schema.to_value();
    Ok((schema, value, session))
}

/// How a database is served, as `_Server` has it.
fn model(session: &mut Session, database: &str) -> Result<Option<String>, Failure> {
    let condition = array([array(["name", "==", database])]);
    let request = transaction("_Server", vec![select("Database", condition)]);
    let results = session.call("transact", request)?;
    let rows = results.as_array().and_then(|results| results.first()?.get("rows")?.as_array());
    let model = rows.and_then(|rows| rows.first()?.get("model")?.as_str());
    Ok(model.map(str::to_owned))
}

/// Makes every column persistent, as clusters have no ephemeral ones.
fn make_columns_persistent(schema: &mut Value) {
    let tables = members(schema).and_then(|schema| schema.get_mut("tables"));
    let Some(tables) = tables.and_then(members) else { return };
    for table in tables.values_mut() {
        let columns = members(table).and_then(|table| table.get_mut("columns"));
        let Some(columns) = columns.and_then(members) else { continue };
        for column in columns.values_mut().filter_map(members) {
            column.remove("ephemeral");
        }
    }
}

fn members(value: &mut Value) -> Option<&mut std::collections::BTreeMap<String, Value>> {
    match value {
        Value::Object(members) => Some(members),
        _ => None,
    }
}
