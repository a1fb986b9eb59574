//! Who is told by which ways rows come (`weir_path`): relays behind this server, which must not be on the way
//! of their own source.

use std::collections::{BTreeMap, BTreeSet};

use weir_upstream::path::Path;

use crate::ids::SessionId;

/// The way of one database, and who wants to know it.
#[derive(Debug, Default)]
struct Told {
    path: Path,
    sessions: BTreeSet<SessionId>,
    /// Sessions of these that have been told an earlier one.
    behind: BTreeSet<SessionId>,
}

impl Told {
    fn change(&mut self, path: Path) {
        if self.path != path {
            self.path = path;
            self.behind.clone_from(&self.sessions);
        }
    }
}

/// All of these, by the names of databases: one that is removed may come again.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_name: BTreeMap<String, Told>,
}

impl Paths {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// A session is told the way of a database now, and wants to be told when that changes.
    pub(crate) fn ask(&mut self, name: &str, path: Path, session: SessionId) {
        let told = self.by_name.entry(name.to_owned()).or_default();
        told.change(path);
        told.sessions.insert(session);
        told.behind.remove(&session);
    }

    /// Looks at the ways as they are now: who is to be told which, of those who can be.
    pub(crate) fn look(
        &mut self,
        path_of: impl Fn(&str) -> Option<Path>,
        can_be_told: impl Fn(SessionId) -> bool,
        mut tell: impl FnMut(&str, &Path, SessionId),
    ) {
        for (name, told) in &mut self.by_name {
            let Some(path) = path_of(name) else { continue };
            told.change(path);
            for session in told.behind.extract_if(.., |session| can_be_told(*session)) {
                tell(name, &told.path, session);
            }
        }
    }

    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.by_name.retain(|_, told| {
            told.behind.remove(&session);
            told.sessions.remove(&session);
            !told.sessions.is_empty()
        });
    }
}
