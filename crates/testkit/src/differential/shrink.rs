//! From a difference to the least that shows it.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Trouble;
use crate::differential::pair::{Finding, Pair};
use crate::differential::run::{Failure, Watchers};
use crate::differential::watch::Watch;
use crate::generate::Schema;
use crate::process::Program;

/// How long to look for something smaller.
const PATIENCE: Duration = Duration::from_secs(60);

/// A schema and transactions that two servers answer differently.
#[derive(Clone, Debug)]
pub struct Case {
    /// The schema, without what the script can do without.
    pub schema: Schema,
    /// The transactions, in order.
    pub script: Vec<Vec<Value>>,
    /// The difference between the two servers' answers.
    pub difference: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schema {}", self.schema.json())?;
        for ops in &self.script {
            writeln!(f, "transact {}", json!(ops))?;
        }
        write!(f, "{}", self.difference)
    }
}

/// Plays a script to fresh servers, watched by monitors of two versions.
fn differs(
    programs: &(Program, Program),
    schema: &Schema,
    script: &[Vec<Value>],
) -> Option<String> {
    match play(programs, schema, script) {
        Ok(()) | Err(Finding::ReferenceBroken(_)) => None,
        Err(Finding::Difference(text)) => Some(text),
        Err(Finding::Trouble(text)) => (!text.contains("did not start")).then_some(text),
    }
}

fn play(
    programs: &(Program, Program),
    schema: &Schema,
    script: &[Vec<Value>],
) -> Result<(), Finding> {
    let mut pair = Pair::start(programs, schema)?;
    let mut watchers = Watchers::new(&pair)?;
    for version in [1, 2] {
        let mut watch = Watch::everything(schema);
        watch.version = version;
        watch.id = json!(format!("v{version}"));
        watchers.watch(&mut pair, schema, watch)?;
    }
    for ops in script {
        pair.exchange(std::slice::from_ref(ops)).map_err(|finding| pair.excuse(finding))?;
        let compared = watchers.compare(&mut pair).map_err(|finding| match finding {
            Finding::Difference(text) => {
                Finding::Difference(format!("after {}\n{text}", json!(ops)))
            }
            other => other,
        });
        compared.map_err(|finding| pair.excuse(finding))?;
    }
    pair.dump().map(|_| ())
}

/// Makes a failure smaller, where its last transactions alone show a difference.
pub fn shrink(programs: &(Program, Program), failure: &Failure) -> Option<Case> {
    let mut script = vec![failure.history.before.insertions()];
    script.retain(|ops| !ops.is_empty());
    script.extend(failure.history.since.iter().cloned());
    let difference = differs(programs, &failure.schema, &script)?;
    let case = Case { schema: failure.schema.clone(), script, difference };
    let mut search = Search { programs, case, until: Instant::now() + PATIENCE };
    loop {
        let size = search.size();
        search.transactions();
        search.operations();
        search.parts();
        if search.size() == size || Instant::now() > search.until {
            break;
        }
    }
    search.columns();
    Some(search.case)
}

struct Search<'a> {
    programs: &'a (Program, Program),
    case: Case,
    until: Instant,
}

impl Search<'_> {
    fn size(&self) -> usize {
        json!(self.case.script).to_string().len()
    }

    fn accept(&mut self, script: Vec<Vec<Value>>) -> bool {
        let waits = |op: &Value| op["op"] == "wait" && op["timeout"] != 0;
        if Instant::now() > self.until || script.iter().flatten().any(waits) {
            return false;
        }
        let Some(difference) = differs(self.programs, &self.case.schema, &script) else {
            return false;
        };
        self.case.script = script;
        self.case.difference = difference;
        true
    }

    fn transactions(&mut self) {
        let mut size = self.case.script.len().div_ceil(2);
        while size > 0 {
            let mut at = 0;
            while at < self.case.script.len() {
                let mut script = self.case.script.clone();
                script.drain(at..(at + size).min(script.len()));
                if !self.accept(script) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn operations(&mut self) {
        for i in 0..self.case.script.len() {
            let mut size = self.case.script[i].len().div_ceil(2);
            while size > 0 {
                let mut at = 0;
                while at < self.case.script[i].len() {
                    let mut script = self.case.script.clone();
                    let end = (at + size).min(script[i].len());
                    script[i].drain(at..end);
                    if !self.accept(script) {
                        at += size;
                    }
                }
                size /= 2;
            }
        }
    }

    /// Columns of rows, conditions, mutations and members of operations.
    fn parts(&mut self) {
        for i in 0..self.case.script.len() {
            for j in 0..self.case.script[i].len() {
                for place in ["/row", "/where", "/mutations", "/columns", "/rows", "/rows/0", ""] {
                    self.part(i, j, place);
                }
            }
        }
    }

    fn part(&mut self, i: usize, j: usize, place: &str) {
        let count = |value: Option<&Value>| match value {
            Some(Value::Object(members)) => members.len(),
            Some(Value::Array(elements)) => elements.len(),
            _ => 0,
        };
        let mut at = 0;
        while at < count(self.case.script[i][j].pointer(place)) {
            let mut script = self.case.script.clone();
            match script[i][j].pointer_mut(place) {
                Some(Value::Object(members)) => {
                    let key = members.keys().nth(at).cloned().unwrap_or_default();
                    members.shift_remove(&key);
                }
                Some(Value::Array(elements)) => drop(elements.remove(at)),
                _ => {}
            }
            if !self.accept(script) {
                at += 1;
            }
        }
    }

    /// Columns, indexes and tables that the script can do without.
    fn columns(&mut self) {
        let text = json!(self.case.script).to_string();
        let mut i = self.case.schema.tables.len();
        while i > 0 {
            i -= 1;
            let name = format!("\"{}\"", self.case.schema.tables[i].name);
            let mut schema = self.case.schema.clone();
            schema.tables.remove(i);
            if !text.contains(&name) && self.accept_schema(schema) {
                continue;
            }
            let mut j = self.case.schema.tables[i].columns.len();
            while j > 0 {
                j -= 1;
                let mut schema = self.case.schema.clone();
                let column = schema.tables[i].columns.remove(j);
                schema.tables[i].indexes.retain(|index| !index.contains(&column.name));
                if !text.contains(&format!("\"{}\"", column.name)) {
                    self.accept_schema(schema);
                }
            }
            let mut schema = self.case.schema.clone();
            schema.tables[i].indexes.clear();
            schema.tables[i].max_rows = None;
            self.accept_schema(schema);
        }
    }

    fn accept_schema(&mut self, schema: Schema) -> bool {
        if Instant::now() > self.until {
            return false;
        }
        let found = differs(self.programs, &schema, &self.case.script);
        found.is_some_and(|difference| {
            self.case.schema = schema;
            self.case.difference = difference;
            true
        })
    }
}

/// Plays the file that a [`Case`] was printed to; what differs, if anything.
///
/// # Errors
/// When the text is not such a file.
pub fn replay(programs: &(Program, Program), text: &str) -> Result<Option<String>, Trouble> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let schema = pairs.find(|(word, _)| *word == "schema").map(|(_, schema)| schema);
    let schema = crate::client::parse(schema.unwrap_or_default().as_bytes())?;
    let schema = Schema::parse(&schema);
    let mut script = vec![];
    for (word, line) in pairs {
        if word == "transact" {
            let ops = crate::client::parse(line.as_bytes())?;
            script.push(ops.as_array().cloned().unwrap_or_default());
        }
    }
    Ok(differs(programs, &schema, &script))
}
