//! What fuzz targets reach of the programs (`fuzz/`). Built for fuzzing only.

use weir_json::Value;

use crate::client::replica::{Form, Replica};
use crate::client::{self, column};
use crate::options::getopt::{Options, Spec};
use crate::tool::options::TABLE as TOOL;
use crate::{appctl, server};

/// Reads a command line as the program of that number does, and runs nothing.
pub fn read_command_line(program: u8, args: Vec<String>) {
    match program % 4 {
        0 => drop(server::options::parse(args)),
        1 => drop(client::options::parse(args)),
        2 => read_options(TOOL, args),
        _ => read_options(appctl::TABLE, args),
    }
}

/// Each argument is an option, its value, or positional; none is lost or made up.
fn read_options<T: Copy + PartialEq>(table: &[Spec<T>], args: Vec<String>) {
    let given = args.len();
    let mut options = Options::new(table, args.clone());
    let has_failed = options.by_ref().any(|option| option.is_err());
    let positional = options.into_positional();
    assert!(positional.len() <= given);
    assert!(has_failed || positional.iter().all(|word| args.contains(word)));
}

/// Runs `ovsdb-tool`.
pub fn tool(args: Vec<String>) {
    let _ = crate::tool::main("ovsdb-tool", args);
}

/// Runs `ovsdb-client`.
pub fn client(args: Vec<String>) {
    client::run_unguarded(args);
}

/// What `weir watch` makes of what a server sends: a schema, then lines of updates.
pub fn watch<'a>(schema: &[u8], updates: impl Iterator<Item = &'a [u8]>) {
    let Some(tables) = Value::parse(schema).ok().as_ref().and_then(column::tables) else { return };
    let mut replica = Replica::new(tables);
    for (number, update) in updates.enumerate() {
        let Ok(update) = Value::parse(update) else { continue };
        let form = if number % 3 == 0 { Form::Values } else { Form::Differences };
        match number % 5 {
            4 => drop(replica.replace(form, &update)),
            _ => drop(replica.apply(form, &update)),
        }
    }
}
