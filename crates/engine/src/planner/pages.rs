//! Rows in order, so many of them: by an ordered key of the first column of the order, or else all
//! that satisfy the condition, brought into the order.
//!
//! The key is walked number by number. Values of one number are next to each other in the order, so
//! the rows of a number are brought into their order, and those of the next number follow.

use weir_data::condition::{Clause, Condition};
use weir_data::store::Slot;
use weir_data::{ColumnId, Row, TableId};

use super::{Few, Plan, Planner, Way, in_order, matching, plan, sources};
use crate::keys::{Key, KeyKind, KeyName, Note, Number, Numbers, ROWS_MIN};
use crate::meter::{self, TooLong};
use crate::page::Page;
use crate::transaction::Transaction;
use sources::Sources;

/// Beside more moved rows than this a key is not walked: each number is looked for among them.
const MOVED_MAX: usize = 64;

impl Planner {
    /// The rows of a page of those that satisfy every clause, in the order of the page.
    pub(crate) fn page<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
        page: &Page,
    ) -> Result<Few<&'t Row>, TooLong> {
        let begin = self.begin();
        let found = self.find_page(txn, table, condition, page);
        self.end(begin, table, found.as_ref().ok().map(|found| found.len()));
        found
    }

    fn find_page<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
        page: &Page,
    ) -> Result<Few<&'t Row>, TooLong> {
        if let Some(found) = self.walk_page(txn, table, condition, page)? {
            return Ok(found);
        }
        let found = self.find(txn, table, condition);
        if self.way == Way::Linear && page.may_walk_key() {
            self.note_order(txn, table, page);
        }
        let mut found = found?;
        txn.meter.afford_each(found.len(), page.comparisons(found.len()))?;
        txn.meter.afford(page.compared(&found))?;
        page.apply(&mut found);
        Ok(found)
    }

    /// As [`Planner::page`], by a key; `None` if there is none, or if more rows would be looked at
    /// than a look at all costs.
    fn walk_page<'t>(
        &mut self,
        txn: &'t Transaction<'_>,
        table: TableId,
        condition: &Condition,
        page: &Page,
    ) -> Result<Option<Few<&'t Row>>, TooLong> {
        let rows = txn.store().table(table);
        let (keys, (column, _)) = (&txn.db().keys, page.first());
        let is_ordered =
            |key: &&Key| (key.name.column, key.name.kind) == (column, KeyKind::Ordered);
        let most = sources::most(rows);
        let may_walk = page.may_walk_key() && page.limit() <= most;
        let (Some(key), true) = (keys.of(table).find(is_ordered), may_walk) else {
            return Ok(None);
        };
        if !matches!(plan(condition, txn.schema().table(table)), Plan::Other)
            || self.moved.all(table).len() > MOVED_MAX
            || self.is_found_by_few(txn, table, condition, page)?
        {
            return Ok(None);
        }
        if let Some(trace) = &mut self.trace {
            trace.note(table, condition);
        }
        let moved = self.moved_numbers(txn, table, column);
        let range = range(keys.numbers(), condition, page);
        let walk = Walk { txn, table, condition, page, key, moved };
        let (found, visited) = walk.run(range, most)?;
        self.work.rows_visited += visited as u64;
        let Some(found) = found else { return Ok(None) };
        self.work.by_alternate += 1;
        self.note(Note::Saved(key.name, rows.len().saturating_sub(visited) as u64));
        self.way = Way::Key(key.name);
        Ok(Some(found))
    }

    /// Whether a key finds so few rows that satisfy the condition that bringing them into order costs
    /// less than any walk.
    fn is_found_by_few(
        &mut self,
        txn: &Transaction<'_>,
        table: TableId,
        condition: &Condition,
        page: &Page,
    ) -> Result<bool, TooLong> {
        let sources = match Sources::of(txn.db(), txn.n_touched(table), table, condition) {
            Sources::None => return Ok(false),
            Sources::Nothing => return Ok(true),
            Sources::Some(sources) => sources,
        };
        let few = sources::CANDIDATES_MIN.max(page.limit());
        let found = self.choose(txn, table, &sources, few);
        txn.meter.check()?;
        Ok(found.is_some())
    }

    /// The numbers of the rows that the transaction has moved, ascending.
    fn moved_numbers(
        &self,
        txn: &Transaction<'_>,
        table: TableId,
        column: ColumnId,
    ) -> Vec<(Number, Slot)> {
        let (rows, numbers) = (txn.store().table(table), txn.db().keys.numbers());
        let slots = self.moved.all(table).iter().filter_map(|uuid| rows.slot(*uuid));
        let number = |slot| Some((numbers.order(rows.at(slot)?.get(column)), slot));
        let mut moved: Vec<_> = slots.filter_map(number).collect();
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    /// Takes note that a key of the first column of an order would have served a page.
    fn note_order(&mut self, txn: &Transaction<'_>, table: TableId, page: &Page) {
        let (rows, (column, _)) = (txn.store().table(table), page.first());
        let key = KeyName { table, column, kind: KeyKind::Ordered };
        let is_wanted = sources::is_few(page.limit(), rows)
            && txn.db().keys.may_want(txn.schema().table(table), key);
        if is_wanted && rows.len() as u64 >= ROWS_MIN {
            self.note(Note::Scanned(key, rows.len() as u64));
        }
        if is_wanted {
            self.wanted.get_or_insert(key);
        }
    }
}

/// The numbers among which the rows of a page are, as far as its condition and its beginning tell.
fn range(numbers: &Numbers, condition: &Condition, page: &Page) -> (Number, Number) {
    let (column, descends) = page.first();
    let (mut low, mut high) = (0, Number::MAX);
    for clause in &condition.clauses {
        let Clause::Compare { column: compared, function, value } = clause else { continue };
        let range = (*compared == column)
            .then(|| numbers.range(KeyKind::Ordered, *function, value.as_ref()))
            .flatten();
        if let Some((first, last)) = range {
            (low, high) = (low.max(first), high.min(last));
        }
    }
    match page.after().map(|after| numbers.order(after)) {
        Some(after) if descends => (low, high.min(after)),
        Some(after) => (low.max(after), high),
        None => (low, high),
    }
}

/// A key that is walked for a page.
struct Walk<'w, 't, 'db> {
    txn: &'t Transaction<'db>,
    table: TableId,
    condition: &'w Condition,
    page: &'w Page,
    key: &'w Key,
    /// The rows that the transaction has moved, by their numbers.
    moved: Vec<(Number, Slot)>,
}

impl<'t> Walk<'_, 't, '_> {
    /// The rows of the page, unless there are more than `most` to look at; how many were looked at.
    fn run(
        &self,
        (mut low, mut high): (Number, Number),
        most: usize,
    ) -> Result<(Option<Few<&'t Row>>, usize), TooLong> {
        let (mut found, mut visited, limit) = (Few::new(), 0, self.page.limit());
        let (_, descends) = self.page.first();
        while found.len() < limit && low <= high {
            let Some(number) = self.next(low, high, descends) else { break };
            let (group, looked_at) = self.rows(number, most.saturating_sub(visited))?;
            visited += looked_at;
            let Some(group) = group else { return Ok((None, visited)) };
            found.extend(group);
            if descends {
                let Some(below) = number.checked_sub(1) else { break };
                high = below;
            } else {
                low = number + 1;
            }
        }
        found.truncate(limit);
        Ok((Some(found), visited))
    }

    /// The next number of a row, in the order of the page.
    fn next(&self, low: Number, high: Number, descends: bool) -> Option<Number> {
        // What is beyond the key's numbers is asked for with the greatest.
        let filed = self.key.entries.next(low, high, descends).filter(|number| *number >= low);
        let moved = self.moved.iter().map(|(number, _)| *number);
        let mut here = moved.filter(|number| (low..=high).contains(number)).chain(filed);
        let first = here.next()?;
        Some(if descends { here.fold(first, Number::max) } else { here.fold(first, Number::min) })
    }

    /// The rows of one number that belong to the page, in its order, unless there are more than
    /// `most` to look at; how many were looked at.
    fn rows(&self, number: Number, most: usize) -> Result<(Option<Few<&'t Row>>, usize), TooLong> {
        let (rows, meter) = (self.txn.store().table(self.table), &self.txn.meter);
        let filed: Few<u32> = self.key.entries.rows(number, number).take(most + 1).collect();
        // Counted before they are looked for: rows that the transaction has deleted are filed, too.
        if filed.len() > most {
            meter.spend(filed.len() as u64 / meter::ENTRIES);
            return Ok((None, most));
        }
        let n_filed = filed.len();
        let slots = filed.into_iter().flat_map(|row| rows.slots_of_number(row));
        let mut slots: Few<Slot> = slots.collect();
        slots.extend(self.moved.iter().filter(|moved| moved.0 == number).map(|moved| moved.1));
        let (slots, checked) = (in_order(slots), meter::condition(self.condition));
        let each = meter::CANDIDATE + checked + self.page.comparisons(slots.len());
        // Walking over what is filed of deleted rows is to be paid for, too.
        let (visited, column) = (slots.len().max(n_filed), self.key.name.column);
        meter.afford_each(visited, each)?;
        let mut found = matching(rows, slots, self.condition);
        // What the transaction has moved is filed where it was, too.
        let numbers = self.txn.db().keys.numbers();
        found.retain(|row| numbers.order(row.get(column)) == number);
        meter.afford(self.page.compared(&found))?;
        self.page.apply(&mut found);
        Ok((Some(found), visited))
    }
}
