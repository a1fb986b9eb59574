//! What is on its way to the file, and what waits for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use weir_data::Uuid;

use crate::effect::Effect;
use crate::entry::{Entry, Place};
use crate::file::{self, Onto, Texts};
use crate::ids::Position;
use crate::member::refused::NoRoom;
use crate::wire::Step;

/// What could not be written is tried again after this long, in microseconds.
const AGAIN_US: u64 = 1_000_000;

/// A follower takes no more entries while so many bytes are on their way to its file, so that a disk that does not
/// answer does not fill its memory.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// A commit index is written by itself after this long, in microseconds.
const COMMIT_US: u64 = 1_000_000;

/// One write.
#[derive(Debug)]
struct Waiting {
    step: u64,
    /// What the library calls it, and all that had nothing to write behind it.
    number: u64,
    what: What,
    /// How many bytes had been given to the file before.
    from: u64,
    /// The step could not be written.
    has_failed: bool,
    acknowledgements: Vec<(Uuid, Step)>,
}

#[derive(Debug)]
enum What {
    Append {
        bytes: Arc<Vec<u8>>,
        records: Records,
        texts: Texts,
        /// The commit index that is in it.
        commit: Option<u64>,
    },
    /// A snapshot of another member takes the file's place.
    Install { last: Position, tail: Arc<Vec<u8>> },
    /// A copy that has all that comes before takes the file's place; it has `len` bytes of records already.
    Finish { len: u64, tail: Arc<Vec<u8>>, texts: Texts },
}

/// What records are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Records {
    /// A term and a vote in it.
    Term,
    /// Entries; `has_term` if the term is in front of them.
    Entries { has_term: bool },
    /// A commit index, on which nothing depends.
    Commit,
    /// A commit index by which servers have come or gone.
    Servers,
    /// The end of the file's use.
    Note,
}

impl Records {
    fn has_term(self) -> bool {
        matches!(self, Self::Term | Self::Entries { has_term: true })
    }
}

impl What {
    /// Whether it is another file for the place of this one, which has all that comes before.
    fn is_file(&self) -> bool {
        matches!(self, Self::Install { .. } | Self::Finish { .. })
    }

    /// How many bytes are to be written.
    fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::Append { bytes, .. } => bytes,
            Self::Install { tail, .. } | Self::Finish { tail, .. } => tail,
        };
        bytes.len() as u64
    }

    /// Whether entries are in it, or may be.
    fn has_entries(&self) -> bool {
        match self {
            Self::Append { records, .. } => matches!(records, Records::Entries { .. }),
            Self::Install { .. } | Self::Finish { .. } => true,
        }
    }

    /// Whether a term is in it, or may be.
    fn has_term(&self) -> bool {
        match self {
            Self::Append { records, .. } => records.has_term(),
            Self::Install { .. } | Self::Finish { .. } => true,
        }
    }

    fn effect(&self, step: u64, behind: u64) -> Effect {
        match self {
            Self::Append { bytes, records, .. } => Effect::Persist {
                step,
                behind,
                bytes: Arc::clone(bytes),
                sync: *records != Records::Commit,
                is_urgent: matches!(records, Records::Term | Records::Note),
            },
            Self::Install { last, tail } => {
                Effect::InstallSnapshot { step, last: *last, tail: Arc::clone(tail) }
            }
            Self::Finish { tail, .. } => Effect::FinishCopy { step, tail: Arc::clone(tail) },
        }
    }
}

/// What has come of a step.
#[derive(Debug, Default)]
pub(super) struct Persisted {
    /// What the library calls it.
    pub(super) number: u64,
    /// What leaves now.
    pub(super) acknowledgements: Vec<(Uuid, Step)>,
    /// The step put a snapshot of another member in the file's place.
    pub(super) has_installed: bool,
    /// The step put a copy in the file's place.
    pub(super) has_finished: bool,
    /// The step is the first one that could be written since one failed.
    pub(super) has_recovered: bool,
    /// Where the file has texts now.
    pub(super) texts: Vec<(Position, Place)>,
}

/// What a failure means.
#[derive(Debug, Default)]
pub(super) struct Failed {
    /// The file did not take what was to be appended to it: a copy that cannot take its place leaves it as
    /// good as it was.
    pub(super) is_of_log: bool,
    /// No other write had failed since the last one that could be made.
    pub(super) is_news: bool,
    /// What only waited behind a copy that failed, and has nothing before it to wait for.
    pub(super) released: Option<Persisted>,
}

/// What has become of what the library wants to be written.
#[derive(Debug)]
pub(super) enum Written {
    /// The step is on its way, or will be when the file takes it.
    Step(Option<Effect>),
    /// There is nothing to write, but what came before is not on the disk.
    Behind,
    /// There is nothing to write, and nothing to wait for.
    Nothing,
}

/// All writes that are not answered.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    last: u64,
    /// The last one that is on the disk.
    good: u64,
    waiting: VecDeque<Waiting>,
    /// How many bytes have been given to the file.
    given: u64,
    /// The commit index that the file does not have yet, and since when, monotonic.
    commit: Option<(u64, u64)>,
    /// The commit index that the file has, and the one that the disk has.
    commit_in_file: u64,
    commit_on_disk: u64,
    /// The last entry by which servers have come or gone and that is committed, since the start.
    servers_at: u64,
    /// Bytes of the file behind its first record.
    log_len: u64,
    /// So many of them are on the disk.
    synced_len: u64,
    /// The file stays as it is until another one takes its place.
    is_kept: bool,
    /// When to try again what could not be written.
    pub(super) again_us: Option<u64>,
    /// Since when nothing could be written, monotonic.
    failing_since_us: Option<u64>,
    /// Entries could not be written, and were given up: none are taken in before this, monotonic.
    closed_until_us: Option<u64>,
    /// The longest fdatasync(2) seen, in microseconds.
    pub(crate) worst_us: u64,
}

impl Steps {
    /// The steps of a file that has so many bytes behind its first record, and this commit index.
    pub(super) fn new(log_len: u64, commit_on_disk: u64) -> Self {
        Self {
            log_len,
            synced_len: log_len,
            commit_in_file: commit_on_disk,
            commit_on_disk,
            ..Self::default()
        }
    }

    /// The file stays as it is, if `is_kept`, until another one takes its place: it is that of another server, whose
    /// damage must not look otherwise, and this one promises nothing before.
    pub(super) fn keep_file(self, is_kept: bool) -> Self {
        Self { is_kept, ..self }
    }

    /// Whether nothing is written, for it would go to a file that stays as it is.
    fn leaves_file(&self) -> bool {
        self.is_kept && !self.waiting.iter().any(|waiting| waiting.what.is_file())
    }

    /// Whether the file refuses what must be in it.
    pub(super) fn is_failing(&self) -> bool {
        self.again_us.is_some() || self.closed_until_us.is_some()
    }

    /// Whether entries of a leader would be in vain.
    pub(super) fn is_closed(&self, now_us: u64) -> bool {
        self.closed_until_us.is_some_and(|until_us| until_us > now_us)
    }

    /// When entries of a leader are tried again, if they were in vain.
    pub(super) fn closed_until_us(&self) -> Option<u64> {
        self.closed_until_us
    }

    /// How long the entries are that the file refuses, and all behind them waits for.
    pub(super) fn no_room(&self) -> NoRoom {
        let first = self.waiting.front().filter(|_| self.failing_since_us.is_some());
        let texts = match first.map(|waiting| &waiting.what) {
            Some(What::Append { texts, .. }) => &**texts,
            _ => &[],
        };
        NoRoom::of(texts.iter().map(|(_, text)| text.len()))
    }

    /// Whether the file has refused everything for so long.
    pub(super) fn is_failing_for(&self, us: u64, now_us: u64) -> bool {
        self.failing_since_us.is_some_and(|since_us| now_us.saturating_sub(since_us) > us)
    }

    /// Puts what the library wants to be written on its way. A commit index is no reason to write:
    /// it goes with what comes next.
    pub(super) fn write(
        &mut self,
        number: u64,
        vote: Option<(u64, Option<Uuid>)>,
        entries: &[Entry],
        commit: Option<u64>,
        now_us: u64,
    ) -> Written {
        if let Some(commit) = commit {
            self.commit = Some((commit, self.commit.map_or(now_us, |(_, since_us)| since_us)));
        }
        if entries.is_empty() && (vote.is_none() || self.leaves_file()) {
            let Some(last) = self.waiting.back_mut() else { return Written::Nothing };
            last.number = number;
            return Written::Behind;
        }
        let mut bytes = Vec::new();
        let commit = self.commit.take().map(|(commit, _)| commit);
        let texts = file::write_step(Onto::File(self.synced()), vote, entries, commit, &mut bytes);
        let bytes = Arc::new(bytes);
        let records = match entries {
            [] => Records::Term,
            _ => Records::Entries { has_term: vote.is_some() },
        };
        Written::Step(self.begin(number, What::Append { bytes, records, texts, commit }))
    }

    /// The commit index, if the file does not have it for a while and nothing else is on its way:
    /// who starts from the file need not be told again.
    pub(super) fn write_commit_if_old(&mut self, now_us: u64) -> Option<Effect> {
        let (commit, since_us) = self.commit?;
        if !self.waiting.is_empty() || now_us < since_us + COMMIT_US {
            return None;
        }
        self.commit = None;
        let records = if self.lacks_servers() { Records::Servers } else { Records::Commit };
        self.write_commit(commit, records)
    }

    /// Whether the disk does not have it that the last change of the servers is committed.
    fn lacks_servers(&self) -> bool {
        self.commit_on_disk < self.servers_at
    }

    /// The commit index, synced: by the entry of this index servers have come or gone, and who counts by it which
    /// there are, and lets others go that are none, must not forget it.
    pub(super) fn write_commit_of_servers(&mut self, index: u64) -> Option<Effect> {
        self.servers_at = index;
        let (commit, _) = self.commit.take()?;
        self.write_commit(commit, Records::Servers)
    }

    fn write_commit(&mut self, commit: u64, records: Records) -> Option<Effect> {
        let mut bytes = Vec::new();
        file::write_step(Onto::File(self.synced()), None, &[], Some(commit), &mut bytes);
        self.append(Arc::new(bytes), records, Some(commit))
    }

    /// Entries up to this one are committed, as the disk has it.
    pub(super) fn commit_on_disk(&self) -> u64 {
        self.commit_on_disk
    }

    /// A snapshot or a copy is in the file's place, which has all up to this entry.
    pub(super) fn has_on_disk(&mut self, index: u64) {
        self.commit_in_file = self.commit_in_file.max(index);
        self.commit_on_disk = self.commit_on_disk.max(index);
    }

    /// A snapshot that has more takes the file's place.
    pub(super) fn forget_commit(&mut self) {
        self.commit = None;
    }

    /// The number of the step that was asked for last.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The last records of a file.
    pub(super) fn write_notes(&mut self, words: &[&str]) -> Option<Effect> {
        let (synced, mut notes) = (self.synced(), Vec::new());
        words.iter().for_each(|word| file::write_note(synced, word, &mut notes));
        self.push(notes, Records::Note)
    }

    /// What is on the disk of the file that takes what is appended now. If others may take its place before,
    /// it is true of each of them: one is synced up to its tail's end, at least.
    fn synced(&self) -> u64 {
        let tail_len = |waiting: &Waiting| match &waiting.what {
            What::Append { .. } => None,
            What::Install { tail, .. } => Some(tail.len() as u64),
            What::Finish { len, tail, .. } => Some(len + tail.len() as u64),
        };
        let tails = self.waiting.iter().filter_map(tail_len);
        tails.fold(self.synced_len, u64::min)
    }

    /// Whether so much is on its way that entries of a leader had better come later.
    pub(super) fn is_behind(&self) -> bool {
        let from = self.waiting.front().map_or(self.given, |first| first.from);
        self.given - from > WAITING_BYTES_MAX
    }

    /// Whether anything is on its way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the file has been asked for something that is not answered.
    pub(super) fn is_under_way(&self) -> bool {
        self.waiting.iter().any(|waiting| !waiting.has_failed)
    }

    /// The step that the file is to answer next, and how many bytes are in it and behind it.
    pub(super) fn unanswered(&self) -> Option<(u64, u64)> {
        let asked = self.waiting.iter().find(|waiting| !waiting.has_failed)?;
        let of_file = if asked.what.is_file() { asked.what.bytes() } else { 0 };
        Some((asked.step, of_file + self.given - asked.from))
    }

    /// Whether a copy is about to take the file's place.
    pub(super) fn is_finishing(&self) -> bool {
        self.waiting.iter().any(|waiting| matches!(waiting.what, What::Finish { .. }))
    }

    /// Puts bytes on their way, unless the file refuses what comes before them.
    fn push(&mut self, bytes: Vec<u8>, records: Records) -> Option<Effect> {
        self.append(Arc::new(bytes), records, None)
    }

    fn append(
        &mut self,
        bytes: Arc<Vec<u8>>,
        records: Records,
        commit: Option<u64>,
    ) -> Option<Effect> {
        if self.leaves_file() {
            return None;
        }
        self.begin(0, What::Append { bytes, records, texts: Texts::new(), commit })
    }

    /// A snapshot that is here takes the file's place, with records behind it.
    pub(super) fn install(&mut self, number: u64, last: Position, tail: Vec<u8>) -> Effect {
        self.replace(number, What::Install { last, tail: Arc::new(tail) })
    }

    /// A copy of the file, which has `len` bytes of records already, is whole with this tail, and takes its
    /// place. `texts` are all those in its records.
    pub(super) fn finish(&mut self, len: u64, tail: Vec<u8>, texts: Texts) -> Effect {
        self.replace(0, What::Finish { len, tail: Arc::new(tail), texts })
    }

    /// Another file takes this one's place, whatever could not be written to this one.
    fn replace(&mut self, number: u64, what: What) -> Effect {
        self.last += 1;
        let (step, has_failed, acknowledgements) = (self.last, false, vec![]);
        let (from, effect) = (self.given, what.effect(step, 0));
        self.waiting.push_back(Waiting { step, number, what, from, has_failed, acknowledgements });
        effect
    }

    fn begin(&mut self, number: u64, what: What) -> Option<Effect> {
        let behind = self.waiting.back().map_or(self.good, |waiting| waiting.step);
        self.last += 1;
        let (step, has_failed) = (self.last, self.again_us.is_some());
        let effect = (!has_failed).then(|| what.effect(step, behind));
        let (from, acknowledgements) = (self.given, vec![]);
        self.given += what.bytes();
        self.waiting.push_back(Waiting { step, number, what, from, has_failed, acknowledgements });
        effect
    }

    /// What leaves when all that is on its way is on the disk.
    pub(super) fn wait(&mut self, acknowledgements: Vec<(Uuid, Step)>) {
        let last = self.waiting.back_mut().expect("something is on its way");
        last.acknowledgements.extend(acknowledgements);
    }

    /// A step is on the disk, and so is all before it. `None` if it failed before and is tried again.
    pub(super) fn persisted(&mut self, step: u64, took_us: u64) -> Option<Persisted> {
        self.worst_us = self.worst_us.max(took_us);
        let at = self.waiting.iter().position(|waiting| waiting.step == step)?;
        let is_file = self.waiting[at].what.is_file();
        assert!(at == 0 || is_file, "steps are answered in order");
        let texts = self.grow(at);
        let mut persisted = Persisted { texts, ..Persisted::default() };
        let mut has_room = self.closed_until_us.is_none();
        for waiting in self.waiting.drain(..=at) {
            // A short record that finds room says nothing of entries.
            has_room |= waiting.what.has_entries();
            if let What::Append { records, commit, .. } = waiting.what {
                self.commit_in_file = self.commit_in_file.max(commit.unwrap_or(0));
                if records != Records::Commit {
                    // What came before it unsynced is on the disk with it.
                    self.commit_on_disk = self.commit_in_file;
                }
            }
            persisted.number = persisted.number.max(waiting.number);
            persisted.acknowledgements.extend(waiting.acknowledgements);
            persisted.has_installed |= matches!(waiting.what, What::Install { .. });
            persisted.has_finished |= matches!(waiting.what, What::Finish { .. });
        }
        self.good = step;
        self.is_kept &= !is_file;
        if has_room {
            self.closed_until_us = None;
            persisted.has_recovered = self.failing_since_us.take().is_some();
        }
        if is_file && self.again_us.is_some() {
            let has_more = self.waiting.iter().any(|waiting| waiting.has_failed);
            self.again_us = has_more.then_some(0);
        }
        Some(persisted)
    }

    /// The file has what the waiting step says, and nothing of those that a copy has replaced: where
    /// the texts in it are.
    fn grow(&mut self, at: usize) -> Vec<(Position, Place)> {
        let what = &mut self.waiting[at].what;
        let is_synced = !matches!(what, What::Append { records: Records::Commit, .. });
        // Texts are counted from where an append begins, and from where the records of another file do.
        let (start, texts, end) = match what {
            What::Append { bytes, texts, .. } => {
                (self.log_len, std::mem::take(texts), self.log_len + bytes.len() as u64)
            }
            What::Install { tail, .. } => (0, Texts::new(), tail.len() as u64),
            What::Finish { len, tail, texts } => {
                (0, std::mem::take(texts), *len + tail.len() as u64)
            }
        };
        self.log_len = end;
        if is_synced {
            // What came before it unsynced is on the disk with it.
            self.synced_len = self.log_len;
        }
        let place = |(at, range): (Position, Range<usize>)| {
            let (offset, len) = (start + range.start as u64, range.len() as u64);
            (at, Place { offset, len })
        };
        texts.into_iter().map(place).collect()
    }

    /// A step could not be written, nor can those behind it.
    pub(super) fn failed(&mut self, step: u64, now_us: u64) -> Failed {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.step == step) else {
            return Failed::default();
        };
        let is_copy = matches!(self.waiting[at].what, What::Finish { .. });
        let released = if is_copy { self.remove_copy(at) } else { None };
        if let Some(waiting) = self.waiting.get_mut(at) {
            waiting.has_failed = true;
        }
        // What takes the file's place has all that comes before, and is followed by the rest.
        let is_before = |waiting: &&mut Waiting| !waiting.what.is_file();
        let behind = self.waiting.iter_mut().skip(at + 1).take_while(is_before);
        behind.for_each(|waiting| waiting.has_failed = true);
        if is_copy {
            // What was to follow the copy follows what was there before it.
            if at < self.waiting.len() {
                self.again_us.get_or_insert(now_us);
            }
            return Failed { released, ..Failed::default() };
        }
        let is_news = self.failing_since_us.is_none();
        self.failing_since_us.get_or_insert(now_us);
        self.again_us = Some(now_us + AGAIN_US);
        Failed { is_of_log: true, is_news, released: None }
    }

    /// A copy has failed: the file is as it was, and so is what waits. Answers with what waited behind the
    /// copy alone, if nothing is before that.
    fn remove_copy(&mut self, at: usize) -> Option<Persisted> {
        let copy = self.waiting.remove(at).expect("it has just been found");
        let Waiting { number, acknowledgements, .. } = copy;
        if let Some(before) = at.checked_sub(1).map(|at| &mut self.waiting[at]) {
            before.number = before.number.max(number);
            before.acknowledgements.extend(acknowledgements);
            return None;
        }
        (number > 0).then(|| Persisted { number, acknowledgements, ..Persisted::default() })
    }

    /// Whether all that waits was refused, and it is not only what can wait for nothing else: then a
    /// member that does not lead goes on without it. A snapshot is not tried again, for it is lost.
    pub(super) fn may_give_up(&self) -> bool {
        let records = |waiting: &Waiting| match waiting.what {
            What::Append { records, .. } => Some(records),
            _ => None,
        };
        let is = |wanted: Records| move |waiting: &Waiting| records(waiting) == Some(wanted);
        let has_snapshot = self.waiting.iter().any(|waiting| waiting.what.is_file());
        let can_wait = self.waiting.iter().any(is(Records::Note))
            || self.waiting.iter().all(is(Records::Term));
        !self.is_under_way() && (has_snapshot || !can_wait)
    }

    /// Nothing of what was refused is tried again, but for the term: it is written now, and what
    /// `is_kept` of what waited leaves behind it. So is a note. See [`Steps::may_give_up`].
    pub(super) fn give_up(
        &mut self,
        vote: (u64, Option<Uuid>),
        commit: u64,
        is_kept: impl Fn(&Step) -> bool,
        now_us: u64,
    ) -> Vec<Effect> {
        let (mut has_term, mut has_entries, mut kept, mut notes) = (false, false, vec![], vec![]);
        for Waiting { what, acknowledgements, .. } in self.waiting.drain(..) {
            has_term |= what.has_term();
            has_entries |= what.has_entries();
            kept.extend(acknowledgements.into_iter().filter(|(_, step)| is_kept(step)));
            if let What::Append { bytes, records: Records::Note, .. } = what {
                notes.push(bytes);
            }
        }
        self.again_us = None;
        if has_entries {
            self.closed_until_us = Some(now_us + AGAIN_US);
        }
        // A commit index that finds room shows that there is some, if no entry waits to show it. One of servers
        // is written in any case: others wait until it is on the disk.
        let is_written = self.closed_until_us.is_none() || self.lacks_servers();
        self.commit = is_written.then_some((commit, now_us));
        let mut effects = vec![];
        if has_term && !self.is_kept {
            let mut bytes = Vec::new();
            file::write_step(Onto::File(self.synced()), Some(vote), &[], None, &mut bytes);
            effects.extend(self.push(bytes, Records::Term));
            self.wait(kept);
        }
        effects.extend(notes.into_iter().filter_map(|note| self.append(note, Records::Note, None)));
        effects
    }

    /// Writes again what could not be written, if it is time: under new numbers.
    pub(super) fn again(&mut self, now_us: u64) -> Vec<Effect> {
        if self.again_us.is_none_or(|at| at > now_us) {
            return vec![];
        }
        self.again_us = None;
        let mut effects = vec![];
        let mut behind = self.good;
        for waiting in &mut self.waiting {
            if waiting.has_failed && waiting.what.is_file() {
                // That is given up as soon as nothing is under way, and what is behind it tried again then.
                break;
            }
            if waiting.has_failed {
                self.last += 1;
                (waiting.step, waiting.has_failed) = (self.last, false);
                effects.push(waiting.what.effect(self.last, behind));
            }
            behind = waiting.step;
        }
        effects
    }
}

#[cfg(test)]
mod tests;
