//! How the operations of a request would find their rows: they run, it is told what each search came
//! to, and nothing is kept of what they changed.
//!
//! The reply is an array as that of `transact`. In place of an operation's result it has an object:
//! the operation's name, and if there was a search, its table, its plan, the columns that it went by,
//! how many rows were looked at and found, and the key that would have served it better. An operation
//! that failed has its error, those behind it have `null`, as have those behind a `wait` that waits.

use std::sync::Arc;

use weir_data::Snapshot;
use weir_json::{Text, write_string};

use crate::database::Database;
use crate::execute::{Done, Env, OperationNumber, Outcome, step};
use crate::keys::KeyName;
use crate::ops::{Run, Stop};
use crate::view;

/// Explains a request on the rows as they are now. An outcome of [`Outcome::TooLong`] is for
/// [`explain_on`].
pub fn explain(db: &mut Database, operations: &[Text<'_>], env: &mut Env<'_>) -> Outcome {
    run(db, operations, env, &[])
}

/// Explains a request that costs more than a step on rows as they were at one moment, as it would
/// run there: without keys. `known` are those that the database has, which need not be named.
pub fn explain_on(
    snapshot: &Snapshot,
    operations: &[Text<'_>],
    env: &mut Env<'_>,
    (seed, known): (u64, &[KeyName]),
) -> Outcome {
    run(&mut view::of(snapshot, operations, seed), operations, env, known)
}

fn run(
    db: &mut Database,
    operations: &[Text<'_>],
    env: &mut Env<'_>,
    known: &[KeyName],
) -> Outcome {
    let (schema, read_only) = (Arc::clone(db.schema()), env.read_only);
    let mut run = Run::new(db, env);
    run.planner.searches = Some(Vec::new());
    let (mut reply, mut has_ended) = (vec![b'['], false);
    for (at, text) in operations.iter().enumerate() {
        if at > 0 {
            reply.push(b',');
        }
        if has_ended {
            reply.extend_from_slice(b"null");
            continue;
        }
        // Results are not told, so long ones are not written either.
        (run.planner.operation, run.late) = (at, Some(Vec::new()));
        run.out.clear();
        let number = OperationNumber { number: at + 1, total: operations.len() };
        match step(&mut run, &schema, *text, &number, read_only) {
            Ok(()) => {}
            Err(Stop::Wait(_)) => has_ended = true,
            Err(Stop::Failed(error)) => {
                error.write(&mut reply);
                has_ended = true;
                continue;
            }
            Err(Stop::TooLong) => return Outcome::TooLong { cost: run.txn.abort() },
        }
        let name = text.members().into_iter().flatten().filter(|(key, _)| **key == *b"op").last();
        reply.extend_from_slice(b"{\"op\":");
        write_string(&mut reply, &name.and_then(|(_, name)| name.str()).unwrap_or_default());
        let searches = run.planner.searches.iter_mut().flat_map(std::mem::take);
        for mut search in searches.filter(|search| search.operation == at) {
            search.wanted = search.wanted.filter(|key| !known.contains(key));
            reply.push(b',');
            search.write(&schema, &mut reply);
        }
        reply.push(b'}');
    }
    reply.push(b']');
    let (work, slowest) = (run.planner.work, run.planner.slowest);
    let cost = run.txn.abort();
    Outcome::Done(Done {
        reply,
        late: None,
        delta: None,
        durable: false,
        comment: None,
        work,
        slowest,
        cost,
    })
}
