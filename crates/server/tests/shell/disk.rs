//! The shell's disk: what of a file is there for sure, and what a crash leaves of it.

use std::collections::{BTreeMap, BTreeSet};

use weir_history::{Binding, Image};
use weir_server::effect::Effect;
use weir_server::event::{DbId, Event};
use weir_server::work::Search;

use super::Shell;

/// What the disk is to do, when it is slow.
pub(crate) enum Job {
    Append {
        db: DbId,
        bytes: Vec<u8>,
        sync: bool,
    },
    /// A copy takes the file's place.
    Finish {
        db: DbId,
        tail: Vec<u8>,
        sync: bool,
    },
}

impl Job {
    /// Whose file.
    pub(crate) fn db(&self) -> DbId {
        match self {
            Self::Append { db, .. } | Self::Finish { db, .. } => *db,
        }
    }
}

/// A disk, as far as the system may lose what is on it when the power fails.
#[derive(Default)]
pub(crate) struct Disk {
    /// How much of each file is on the disk.
    synced: BTreeMap<String, usize>,
    /// Where a torn tail begins, which goes with the next append.
    torn: BTreeMap<String, usize>,
    /// Files that another has replaced, while the directory on the disk may still show them.
    replaced: BTreeMap<String, (Vec<u8>, usize)>,
    /// Files of which an fdatasync(2) has failed.
    suspect: BTreeSet<DbId>,
    /// Durability was promised since the last compaction began.
    promised: bool,
    /// What the name of the side file of the copy ends in.
    side_file: Option<String>,
}

/// What stands between a database's path and the hash in the names of its side files.
const SIDE_FILE: &str = ".weir-history-";

/// What a power failure does with bytes that are not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// The part of the lost bytes that stays, of 65,536.
    pub(crate) kept: u16,
    /// What the lost bytes read as, if the file kept its length.
    pub(crate) filler: Option<u8>,
    /// The directory shows the file from before a compaction, if it may.
    pub(crate) old_name: bool,
}

impl Shell {
    /// The disk has done what it was asked for.
    pub(crate) fn disk_is_done(&mut self) {
        while !self.disk_jobs.is_empty() {
            self.do_disk(0);
        }
    }

    /// Whether the disk has anything to do with a file: what comes for it waits behind that.
    pub(super) fn has_disk_jobs(&self, db: DbId) -> bool {
        self.disk_jobs.iter().any(|job| job.db() == db)
    }

    /// Does the first job of one of the files that have any.
    pub(crate) fn do_disk(&mut self, at: usize) {
        let mut dbs: Vec<DbId> = Vec::new();
        for job in &self.disk_jobs {
            if !dbs.contains(&job.db()) {
                dbs.push(job.db());
            }
        }
        let Some(db) = dbs.get(at % dbs.len().max(1)) else { return };
        let at = self.disk_jobs.iter().position(|job| job.db() == *db);
        match self.disk_jobs.remove(at.expect("the file has a job")) {
            Some(Job::Append { db, bytes, sync }) => self.append(db, &bytes, sync),
            Some(Job::Finish { db, tail, sync }) => self.finish(db, &tail, sync),
            None => {}
        }
    }

    pub(super) fn finish(&mut self, db: DbId, tail: &[u8], sync: bool) {
        let result = self.replace(db, tail, sync);
        self.event(Event::CompactionFinished { db, result });
    }

    /// Opened: whatever is in the file now is on the disk.
    pub(super) fn note_opened(&mut self, path: &str, valid_len: u64) {
        let len = self.files[path].len();
        self.disk.synced.insert(path.to_owned(), len);
        self.disk.torn.insert(path.to_owned(), valid_len as usize);
    }

    pub(super) fn append(&mut self, db: DbId, bytes: &[u8], sync: bool) {
        self.appends += 1;
        self.syncs += usize::from(sync);
        let result = match self.disk_error {
            Some(error) => Err(error.to_owned()),
            None if self.disk.suspect.contains(&db) => Err("Input/output error".to_owned()),
            None => match self.sync_error.filter(|_| sync) {
                Some(error) => {
                    // What was not synced is lost, and no later fdatasync(2) tells.
                    self.disk.suspect.insert(db);
                    self.event(Event::FileSuspect { db });
                    Err(error.to_owned())
                }
                None => {
                    self.write(db, bytes);
                    if sync {
                        self.sync(db);
                    }
                    Ok(())
                }
            },
        };
        self.event(Event::Appended { db, result });
    }

    /// A search gets the file as it is now, if there is one.
    pub(super) fn give_file(&self, db: DbId, search: Box<Search>) -> Box<Search> {
        let Some(path) = self.open.get(&db) else { return search };
        let mut file = self.files[path].clone();
        self.disk.torn.get(path).into_iter().for_each(|valid_len| file.truncate(*valid_len));
        let len = file.len() as u64;
        let read_at = move |offset: u64, room: &mut [u8]| {
            let left = &file[offset as usize..];
            // Now and then less comes than is asked for.
            let count = left.len().min(room.len()).min(100_000);
            room[..count].copy_from_slice(&left[..count]);
            Ok(count)
        };
        search.in_file(len, Box::new(read_at))
    }

    fn write(&mut self, db: DbId, bytes: &[u8]) {
        let path = &self.open[&db];
        let file = self.files.get_mut(path).unwrap();
        if let Some(valid_len) = self.disk.torn.remove(path) {
            file.truncate(valid_len);
            let synced = self.disk.synced.get_mut(path).unwrap();
            *synced = valid_len.min(*synced);
        }
        file.extend_from_slice(bytes);
    }

    /// Does what fdatasync(2) does; the directory first.
    fn sync(&mut self, db: DbId) {
        let path = &self.open[&db];
        self.disk.promised = true;
        self.disk.replaced.remove(path);
        self.disk.synced.insert(path.clone(), self.files[path].len());
    }

    /// Does what a helper does: writes a copy beside the file, which is on the disk then.
    pub(super) fn write_copy(
        &mut self,
        db: DbId,
        write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), String>) -> Result<Binding, String>,
        image: impl FnOnce(&Binding) -> Option<Image>,
    ) -> Result<u64, String> {
        self.disk.promised = false;
        self.disk.side_file = None;
        let error = self.disk_error;
        let mut copy = Vec::new();
        let result = write(&mut |bytes: &[u8]| {
            copy.extend_from_slice(bytes);
            error.map_or(Ok(()), |error| Err(error.to_owned()))
        });
        let (path, len) = (self.open[&db].clone(), copy.len() as u64);
        self.files.insert(format!("{path}.tmp"), copy);
        let binding = result?;
        if let Some(image) = image(&binding) {
            let mut side_file = Vec::new();
            image.write(&binding, &mut |bytes| {
                side_file.extend_from_slice(bytes);
                Ok(())
            })?;
            self.files.insert(format!("{path}{SIDE_FILE}{}", binding.text()), side_file);
            self.disk.side_file = Some(binding.text());
        }
        Ok(len)
    }

    /// Does what a helper does: appends to the copy, which is on the disk then.
    pub(super) fn extend_copy(&mut self, db: DbId, records: &[u8]) -> Result<u64, String> {
        self.copies_extended += 1;
        let copy = self.files.get_mut(&format!("{}.tmp", self.open[&db])).expect("it was written");
        copy.extend_from_slice(records);
        self.disk_error.map_or(Ok(copy.len() as u64), |error| Err(error.to_owned()))
    }

    /// The side files of a database but for this one go.
    fn remove_side_files(&mut self, path: &str, but: Option<&str>) {
        let prefix = format!("{path}{SIDE_FILE}");
        self.files
            .retain(|name, _| name.strip_prefix(&prefix).is_none_or(|hash| Some(hash) == but));
    }

    /// The copy is not to take its file's place.
    pub(super) fn discard_copy(&mut self, db: DbId) {
        let side_file = self.disk.side_file.take();
        if let Some(path) = self.open.get(&db) {
            self.files.remove(&format!("{path}.tmp"));
            if let Some(side_file) = side_file {
                self.files.remove(&format!("{path}{SIDE_FILE}{side_file}"));
            }
        }
    }

    /// The side files beside a database.
    pub(super) fn side_files(&self, path: &str) -> Vec<Vec<u8>> {
        let prefix = format!("{path}{SIDE_FILE}");
        let files = self.files.iter().filter(|(name, _)| name.starts_with(&prefix));
        files.map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Puts the copy with `tail` behind it in the file's place.
    pub(super) fn replace(&mut self, db: DbId, tail: &[u8], sync: bool) -> Result<u64, String> {
        let path = self.open[&db].clone();
        let mut copy = self.files.remove(&format!("{path}.tmp")).unwrap();
        if let Some(error) = self.disk_error {
            return Err(error.to_owned());
        }
        self.disk.suspect.remove(&db);
        let mut synced = copy.len();
        copy.extend_from_slice(tail);
        if self.disk.promised || sync {
            synced = copy.len();
        }
        let size = copy.len() as u64;
        let old = self.files.insert(path.clone(), copy).unwrap();
        let old_synced = self.disk.synced.insert(path.clone(), synced).unwrap();
        self.disk.torn.remove(&path);
        let side_file = self.disk.side_file.take();
        self.remove_side_files(&path, side_file.as_deref());
        // Of two compactions that the directory does not show yet, the first one's file stays.
        if sync {
            self.disk.replaced.remove(&path);
        } else {
            self.disk.replaced.entry(path).or_insert((old, old_synced));
        }
        Ok(size)
    }

    /// The effect in which everything ends: half of what is to be written is.
    pub(super) fn last_effect(&mut self, effect: Effect) {
        if let Effect::Append { db, bytes, .. } = effect
            && self.disk_error.is_none()
        {
            self.write(db, &bytes[..bytes.len() / 2]);
        }
    }

    /// The file at `path` as it is after the process was killed.
    pub(crate) fn after_kill(&self, path: &str) -> Vec<u8> {
        self.files[path].clone()
    }

    /// The file at `path` as it is after the machine lost its power.
    pub(crate) fn after_power_failure(&self, path: &str, lost: Lost) -> Vec<u8> {
        let (file, synced) = match self.disk.replaced.get(path) {
            Some((file, synced)) if lost.old_name => (file, *synced),
            _ => (&self.files[path], self.disk.synced[path]),
        };
        let unsynced = file.len() - synced;
        let kept = synced + unsynced * usize::from(lost.kept) / 65_536;
        let mut left = file[..kept].to_vec();
        if let Some(filler) = lost.filler {
            left.resize(file.len(), filler);
        }
        left
    }
}
