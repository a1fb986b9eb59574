//! What is deleted: a row that was there for good is gone for good, with every reference to it.
//!
//! Clients insert items and delete them again. One more row names all of them, by weak references, and
//! counts them; who inserts an item adds both, and who deletes one takes one from the count only.

use std::collections::{BTreeMap, BTreeSet};

use super::{Process, Verdict};

/// The items that somebody has, and what the row says that names and counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Items {
    /// The names of the items, by id.
    pub(crate) names: BTreeMap<String, String>,
    /// The ids that the row names.
    pub(crate) list: BTreeSet<String>,
    /// How many the row counts.
    pub(crate) n: u64,
}

impl Items {
    /// Each state has whole transactions, and no reference to what is gone.
    pub(crate) fn are_whole(&self) -> Verdict {
        let is_same = self.list.iter().eq(self.names.keys());
        if is_same && self.n == self.names.len() as u64 {
            return Ok(());
        }
        let dangling: Vec<&String> =
            self.list.iter().filter(|id| !self.names.contains_key(*id)).take(5).collect();
        let unnamed: Vec<&String> =
            self.names.keys().filter(|id| !self.list.contains(*id)).take(5).collect();
        let (items, n) = (self.names.len(), self.n);
        Err(format!("{items} items, counted {n} times; named and gone {dangling:?}, {unnamed:?}"))
    }
}

/// What a client was told of an item.
#[derive(Clone, Debug)]
enum Told {
    There(String),
    Gone(String),
}

/// So much of what a process and anybody was told of items is to be found by who reads now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KnownItems {
    of_process: usize,
    of_all: usize,
}

/// What clients were told of items.
#[derive(Default)]
pub(crate) struct Deleted {
    told: Vec<Told>,
    by_process: BTreeMap<Process, Vec<Told>>,
    /// The ids that the answers named.
    ids: BTreeMap<String, String>,
    /// Items that are never to be.
    refused: BTreeSet<String>,
    /// Items that may be gone: somebody has asked for that.
    going: BTreeSet<String>,
    /// How many were deleted.
    deleted: u64,
}

impl Deleted {
    fn tell(&mut self, process: Process, told: Told) {
        self.told.push(told.clone());
        self.by_process.entry(process).or_default().push(told);
    }

    /// A process has told a client that an item is there.
    pub(crate) fn inserted(&mut self, process: Process, name: &str, id: &str) {
        self.ids.insert(name.to_owned(), id.to_owned());
        self.tell(process, Told::There(name.to_owned()));
    }

    /// An item is never to be.
    pub(crate) fn refused(&mut self, name: &str) {
        self.refused.insert(name.to_owned());
    }

    /// A client asks for an item to be deleted.
    pub(crate) fn asked(&mut self, name: &str) {
        self.going.insert(name.to_owned());
    }

    /// A process has told a client that an item is deleted: so many were, and so many rows counted that.
    pub(crate) fn deleted(
        &mut self,
        process: Process,
        name: &str,
        counts: [Option<u64>; 2],
    ) -> Verdict {
        if counts != [Some(1); 2] {
            return Err(format!("{name} was there, and {counts:?} rows were deleted and counted"));
        }
        self.deleted += 1;
        self.tell(process, Told::Gone(name.to_owned()));
        Ok(())
    }

    /// An item is not deleted, and never will be.
    pub(crate) fn stays(&mut self, name: &str) {
        self.going.remove(name);
    }

    /// What a client may count on that reads from a process now; all that anybody was told if it has waited.
    pub(crate) fn known(&self, process: Process, of_all: bool) -> KnownItems {
        KnownItems {
            of_process: self.by_process.get(&process).map_or(0, Vec::len),
            of_all: if of_all { self.told.len() } else { 0 },
        }
    }

    /// A client has read all items of a process.
    pub(crate) fn read(&self, process: Process, known: KnownItems, items: &Items) -> Verdict {
        items.are_whole()?;
        let mut there = BTreeSet::new();
        for (id, name) in &items.names {
            if !there.insert(name) {
                return Err(format!("{name} is there more than once"));
            }
            if self.refused.contains(name) {
                return Err(format!("{name} was never to be, and is there"));
            }
            if let Some(told) = self.ids.get(name).filter(|told| *told != id) {
                return Err(format!("{name} is {id}, and its client was told {told}"));
            }
        }
        let of_process = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
        for told in of_process[..known.of_process].iter().chain(&self.told[..known.of_all]) {
            match told {
                Told::There(name) if !there.contains(name) && !self.going.contains(name) => {
                    return Err(format!("{name} was not deleted, and is not there"));
                }
                Told::Gone(name) if there.contains(name) => {
                    return Err(format!("{name} was deleted, and is there"));
                }
                Told::There(_) | Told::Gone(_) => {}
            }
        }
        Ok(())
    }

    /// How many items were deleted, as their clients were told.
    pub(crate) fn count(&self) -> u64 {
        self.deleted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Process = (1, 1);

    fn items(names: &[(&str, &str)]) -> Items {
        let names: BTreeMap<String, String> =
            names.iter().map(|(id, name)| ((*id).to_owned(), (*name).to_owned())).collect();
        Items { list: names.keys().cloned().collect(), n: names.len() as u64, names }
    }

    #[test]
    fn a_state_names_and_counts_what_is_there() {
        let good = items(&[("1", "a"), ("2", "b")]);
        assert_eq!(good.are_whole(), Ok(()));
        let mut dangling = good.clone();
        dangling.names.remove("1");
        dangling.n = 1;
        assert!(dangling.are_whole().is_err(), "a reference to what is gone");
        assert!(Items { n: 3, ..good.clone() }.are_whole().is_err(), "half a transaction");
        assert!(Items { list: BTreeSet::new(), ..good }.are_whole().is_err(), "not named");
    }

    #[test]
    fn what_is_deleted_is_gone_and_the_rest_is_there() {
        let mut deleted = Deleted::default();
        for (id, name) in [("1", "a"), ("2", "b"), ("3", "c")] {
            deleted.inserted(HERE, name, id);
        }
        let before = deleted.known(HERE, false);
        for name in ["a", "b", "c"] {
            deleted.asked(name);
        }
        assert_eq!(deleted.deleted(HERE, "a", [Some(1); 2]), Ok(()));
        assert!(deleted.deleted(HERE, "a", [Some(0), Some(1)]).is_err(), "it was there");
        deleted.stays("c");
        let known = deleted.known(HERE, false);
        let read = |known, rows: &[_]| deleted.read(HERE, known, &items(rows));
        assert_eq!(read(known, &[("3", "c")]), Ok(()));
        assert_eq!(read(known, &[("2", "b"), ("3", "c")]), Ok(()), "nobody knows of b");
        assert!(read(known, &[("2", "b")]).is_err(), "c stays");
        assert!(read(known, &[("1", "a"), ("3", "c")]).is_err(), "a is gone");
        assert_eq!(read(before, &[("1", "a"), ("3", "c")]), Ok(()), "it was there before");
        assert!(read(known, &[("4", "c")]).is_err(), "another reply");
        let elsewhere = (2, 1);
        assert_eq!(deleted.read(elsewhere, deleted.known(elsewhere, false), &items(&[])), Ok(()));
        let all = deleted.known(elsewhere, true);
        assert!(deleted.read(elsewhere, all, &items(&[("1", "a"), ("3", "c")])).is_err());
    }

    #[test]
    fn an_item_is_there_once_and_never_if_it_was_refused() {
        let mut deleted = Deleted::default();
        deleted.refused("d");
        let known = deleted.known(HERE, true);
        assert!(deleted.read(HERE, known, &items(&[("1", "d")])).is_err());
        assert!(deleted.read(HERE, known, &items(&[("1", "a"), ("2", "a")])).is_err());
    }
}
