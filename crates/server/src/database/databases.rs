//! The open databases by number. They are few and all of them are gone through several times a
//! round, so they lie side by side.

use crate::database::Db;
use crate::event::DbId;

/// The open databases, by ascending number.
#[derive(Default)]
pub(crate) struct Databases {
    entries: Vec<(DbId, Db)>,
}

impl Databases {
    fn find(&self, id: DbId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |(id, _)| *id)
    }

    pub(crate) fn get(&self, id: &DbId) -> Option<&Db> {
        let at = self.find(*id).ok()?;
        Some(&self.entries[at].1)
    }

    pub(crate) fn get_mut(&mut self, id: &DbId) -> Option<&mut Db> {
        let at = self.find(*id).ok()?;
        Some(&mut self.entries[at].1)
    }

    pub(crate) fn insert(&mut self, id: DbId, db: Db) {
        match self.find(id) {
            Ok(at) => self.entries[at].1 = db,
            Err(at) => self.entries.insert(at, (id, db)),
        }
    }

    pub(crate) fn remove(&mut self, id: &DbId) -> Option<Db> {
        let at = self.find(*id).ok()?;
        Some(self.entries.remove(at).1)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (DbId, &mut Db)> {
        self.entries.iter_mut().map(|(id, db)| (*id, db))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Db> {
        self.entries.iter().map(|(_, db)| db)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Db> {
        self.entries.iter_mut().map(|(_, db)| db)
    }

    /// The numbers of all, for one who changes them.
    pub(crate) fn ids(&self) -> Vec<DbId> {
        self.entries.iter().map(|(id, _)| *id).collect()
    }

    /// The numbers of those that are meant, for one who changes them.
    pub(crate) fn ids_where(&self, is_meant: impl Fn(&Db) -> bool) -> Vec<DbId> {
        let mut ids = Vec::new();
        // A loop costs half of what collecting costs where there is nothing.
        for (id, db) in &self.entries {
            if is_meant(db) {
                ids.push(*id);
            }
        }
        ids
    }
}
