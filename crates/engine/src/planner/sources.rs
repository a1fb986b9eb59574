//! Where candidates come from if neither `_uuid` nor a unique index names them: keys, and the weak
//! references that are filed under the rows that they refer to.
//!
//! Each source knows a superset of the committed rows that satisfy the condition. They are walked
//! in turns, an entry each: the first that is at its end has the fewest. Nothing is estimated.

use weir_data::condition::{Clause, Condition, Function};
use weir_data::store::Table;
use weir_data::types::RefKind;
use weir_data::{AtomRef, ColumnId, TableId, TableSchema, Uuid};

use super::Few;
use crate::database::Database;
use crate::keys::{Key, KeyKind, KeyName, Number, Numbers, Rows};
use crate::links::Links;
use crate::meter;

/// Looking at a row that a key has found costs as much as so many rows of a scan.
const SCAN_SHARE: usize = 8;
/// So many candidates are looked at, however small the table.
pub(super) const CANDIDATES_MIN: usize = 8;
/// More candidates than this are worth a look into another source.
const INTERSECT_MIN: usize = 32;
/// Another source is walked for so many times the candidates that there are.
const INTERSECT_SHARE: usize = 4;
/// A transaction that has touched more rows of a table does not look for weak references in it:
/// what it has moved in them is not filed.
const TOUCHED_MAX: usize = 256;
/// Sources that are walked in turns: those of a condition's first clauses.
const SOURCES_MAX: usize = 8;
/// Rows that are looked at to know whether a scan would find few, where all are too many.
const SAMPLE_MAX: usize = 256;
/// Rows that are looked at for that whatever it costs.
const SAMPLE_MIN: usize = 8;
/// What it may cost to look at more.
const SAMPLE_COST: u64 = 1_024;

/// A superset of the committed rows that satisfy a condition.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) column: ColumnId,
    pub(super) kind: KeyKind,
    /// What the rows are filed under in `column`.
    pub(super) numbers: (Number, Number),
    by: By<'a>,
}

#[derive(Clone, Copy, Debug)]
enum By<'a> {
    Key(&'a Key),
    /// Weak references to a row.
    Links(&'a Links, (TableId, Uuid)),
}

/// What the sources of a condition come to.
#[derive(Debug)]
pub(super) enum Sources<'a> {
    /// No source: all rows must be looked at.
    None,
    /// The condition contradicts itself.
    Nothing,
    /// At least one.
    Some(Few<Source<'a>>),
}

/// Candidates, by their rows' numbers.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    pub(super) rows: Few<u32>,
    /// The source that had the fewest.
    pub(super) source: usize,
    /// Entries that were walked, in all sources.
    pub(super) walked: u64,
}

impl<'a> Sources<'a> {
    /// All that can serve a condition, in a transaction that has touched so many rows of the table.
    pub(super) fn of(
        db: &'a Database,
        touched: usize,
        table: TableId,
        condition: &Condition,
    ) -> Self {
        let schema = db.schema().table(table);
        let mut found = Few::new();
        for key in db.keys.of(table) {
            if !add_key(key, db.keys.numbers(), condition, &mut found) {
                return Self::Nothing;
            }
        }
        // Rows that the transaction has touched are all looked at besides.
        if db.has_links && touched <= TOUCHED_MAX && db.links.refers_weakly(table) {
            for clause in &condition.clauses {
                add_links(&db.links, db.keys.numbers(), schema, clause, &mut found);
            }
        }
        found.truncate(SOURCES_MAX);
        if found.is_empty() { Self::None } else { Self::Some(found) }
    }
}

/// Adds what a key knows about rows that satisfy a condition; false if there are no such rows.
fn add_key<'a>(
    key: &'a Key,
    numbers: &Numbers,
    condition: &Condition,
    found: &mut Few<Source<'a>>,
) -> bool {
    let KeyName { column, kind, .. } = key.name;
    let mut source = |numbers| found.push(Source { column, kind, numbers, by: By::Key(key) });
    let mut bounds: Option<(Number, Number)> = None;
    for clause in &condition.clauses {
        let Clause::Compare { column: compared, function, value } = clause else { continue };
        if *compared != column {
            continue;
        }
        let value = value.as_ref();
        if kind != KeyKind::Inverted {
            if let Some((first, last)) = numbers.range(kind, *function, value) {
                let (low, high) = bounds.unwrap_or((0, Number::MAX));
                bounds = Some((low.max(first), high.min(last)));
            }
            continue;
        }
        let is_equal = *function == Function::Equal;
        if is_equal && value.is_empty() {
            source((Numbers::of_nothing(), Numbers::of_nothing()));
        } else if is_equal || *function == Function::Includes {
            for entry in value.entries().take(SOURCES_MAX) {
                let number = numbers.entry(entry);
                source((number, number));
            }
        }
    }
    match bounds {
        Some((first, last)) if first > last => return false,
        Some(numbers) => source(numbers),
        None => {}
    }
    true
}

/// Adds the rows that refer weakly to what a clause demands a reference to.
fn add_links<'a>(
    links: &'a Links,
    numbers: &Numbers,
    schema: &TableSchema,
    clause: &Clause,
    found: &mut Few<Source<'a>>,
) {
    let Clause::Compare { column, function: Function::Equal | Function::Includes, value } = clause
    else {
        return;
    };
    let refs = schema.column(*column).refs;
    let weak = |target: Option<(TableId, RefKind)>, atom: Option<AtomRef<'_>>| {
        let (target, kind) = target?;
        (kind == RefKind::Weak).then_some((target, atom?.as_uuid()?))
    };
    for (key, value) in value.as_ref().entries().take(SOURCES_MAX) {
        let Some(to) = weak(refs.key, Some(key)).or_else(|| weak(refs.value, value)) else {
            return;
        };
        let number = numbers.entry((key, value));
        found.push(Source {
            column: *column,
            kind: KeyKind::Inverted,
            numbers: (number, number),
            by: By::Links(links, (to.0, to.1)),
        });
    }
}

/// Whether a clause is found by weak references.
pub(super) fn is_linked(schema: &TableSchema, column: ColumnId) -> bool {
    let refs = schema.column(column).refs;
    [refs.key, refs.value].iter().flatten().any(|(_, kind)| *kind == RefKind::Weak)
}

/// So many candidates cost less than a look at all rows.
pub(super) fn most(rows: &Table) -> usize {
    CANDIDATES_MIN + rows.len() / SCAN_SHARE
}

/// Whether so many rows of a table are few enough for a key to serve who looks for them.
pub(super) fn is_few(found: usize, rows: &Table) -> bool {
    found <= rows.len() / SCAN_SHARE
}

/// Whether few rows would satisfy a condition, as far as some of them tell; and what it has cost to
/// look at those.
pub(super) fn seem_few(rows: &Table, condition: &Condition) -> (bool, u64) {
    let each = meter::condition(condition);
    let looks = ((SAMPLE_COST / each) as usize).clamp(SAMPLE_MIN, SAMPLE_MAX);
    let (mut looked_at, mut found) = (0, 0);
    for row in rows.sample(looks) {
        looked_at += 1;
        found += usize::from(condition.matches_all(row));
    }
    (found <= looked_at / SCAN_SHARE, each.saturating_mul(looked_at as u64))
}

/// One source on its way.
enum Walk<'a> {
    Key(Rows<'a>),
    Links(Box<dyn Iterator<Item = u32> + 'a>),
}

impl Iterator for Walk<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::Key(rows) => rows.next(),
            Self::Links(rows) => rows.next(),
        }
    }
}

impl<'a> Source<'a> {
    /// The rows' numbers; those of one number of a key ascend.
    fn walk(&self, table: TableId, rows: &'a Table) -> Walk<'a> {
        match self.by {
            By::Key(key) => Walk::Key(key.entries.rows(self.numbers.0, self.numbers.1)),
            By::Links(links, (target, to)) => {
                // Those of other columns, too: what is walked is counted.
                let from = links.weak_from(table, (target, to));
                // A reference of a row to itself is not filed.
                let itself = (target == table).then_some(to);
                let uuids = itself.into_iter().chain(from);
                Walk::Links(Box::new(uuids.map(|uuid| rows.row_number(uuid))))
            }
        }
    }

    /// The key that answers, if it is one.
    pub(super) fn key(&self) -> Option<KeyName> {
        match self.by {
            By::Key(key) => Some(key.name),
            By::Links(..) => None,
        }
    }

    /// Whether what the transaction has moved is filed nowhere.
    pub(super) fn is_links(&self) -> bool {
        matches!(self.by, By::Links(..))
    }

    fn ascends(&self) -> bool {
        matches!(self.by, By::Key(_)) && self.numbers.0 == self.numbers.1
    }
}

/// The candidates of the source that has the fewest, without those that another source rules out
/// cheaply; `Err` with the number of entries walked if there are more than `most`.
pub(super) fn choose(
    sources: &[Source<'_>],
    table: TableId,
    rows: &Table,
    most: usize,
) -> Result<Candidates, u64> {
    let mut walks: Few<_> = sources.iter().map(|source| source.walk(table, rows)).collect();
    if let [walk] = &mut walks[..] {
        let rows: Few<u32> = walk.take(most + 1).collect();
        let walked = rows.len() as u64;
        return if rows.len() > most {
            Err(walked)
        } else {
            Ok(Candidates { rows, source: 0, walked })
        };
    }
    let mut found: Few<Few<u32>> = sources.iter().map(|_| Few::new()).collect();
    for turn in 0..=most {
        for at in 0..walks.len() {
            let Some(row) = walks[at].next() else {
                let mut walked = (turn * walks.len() + at) as u64;
                let mut rows = std::mem::take(&mut found[at]);
                if rows.len() > INTERSECT_MIN {
                    sort(&sources[at], &mut rows);
                    for other in (0..walks.len()).filter(|other| *other != at) {
                        let room =
                            (INTERSECT_SHARE * rows.len()).saturating_sub(found[other].len());
                        let before = found[other].len();
                        found[other].extend(walks[other].by_ref().take(room + 1));
                        walked += (found[other].len() - before) as u64;
                        if found[other].len() - before <= room {
                            sort(&sources[other], &mut found[other]);
                            retain_both(&mut rows, &found[other]);
                        }
                    }
                }
                return Ok(Candidates { rows, source: at, walked });
            };
            found[at].push(row);
        }
    }
    Err((most * walks.len()) as u64)
}

fn sort(source: &Source<'_>, rows: &mut Few<u32>) {
    if !source.ascends() {
        rows.sort_unstable();
    }
}

/// Keeps the rows that are in the other list, too; both ascend.
fn retain_both(rows: &mut Few<u32>, other: &[u32]) {
    let mut rest = other;
    rows.retain(|row| {
        let less = rest.iter().take_while(|other| **other < *row).count();
        rest = &rest[less..];
        rest.first() == Some(row)
    });
}
