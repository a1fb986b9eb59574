//! The files of one server, as far as a crash may lose what is in them.

use weir_testkit::rng::Rng;

/// A database's file, and the copy that may take its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// What it began with.
    first: Vec<u8>,
    pub(crate) file: Vec<u8>,
    /// So much of it is there for good.
    pub(crate) synced: usize,
    /// The step that was written last by the process that has it open.
    pub(crate) step: u64,
    /// Behind a torn tail the next append goes here.
    valid: Option<usize>,
    /// A complete copy.
    pub(crate) copy: Option<Vec<u8>>,
    /// A file that comes from elsewhere, or how long it was when no more of it could be written.
    pub(crate) received: Option<Result<Vec<u8>, u64>>,
    /// A file from elsewhere is on its way, until it is in the database file's place or let go.
    pub(crate) is_receiving: bool,
    /// What was in this file's place, while the directory may still show it.
    replaced: Option<(Vec<u8>, usize)>,
    /// Copies so far: what comes of one that has been let go is not told.
    pub(crate) copies: u64,
    /// Files so far that have taken this one's place.
    pub(crate) files: u64,
    /// An fdatasync(2) has failed: the file takes nothing until another one takes its place.
    pub(crate) is_suspect: bool,
    /// What is declared about keys, beside the file.
    pub(crate) keys: Option<Vec<u8>>,
}

impl Disk {
    pub(crate) fn new(file: Vec<u8>) -> Self {
        Self { first: file.clone(), synced: file.len(), file, ..Self::default() }
    }

    /// The file is opened: what is in it is on the disk from then on.
    pub(crate) fn open(&mut self, valid: u64) {
        (self.synced, self.step, self.is_suspect) = (self.file.len(), 0, false);
        self.valid = Some(usize::try_from(valid).expect("it is in memory"));
    }

    /// Where the file ends once this has been written.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        if let Some(valid) = self.valid.take() {
            self.file.truncate(valid);
            self.synced = self.synced.min(valid);
        }
        self.file.extend_from_slice(bytes);
        self.file.len()
    }

    /// All up to there is on the disk, if that is still the same file.
    pub(crate) fn sync(&mut self, upto: usize) {
        self.synced = self.synced.max(upto.min(self.file.len()));
        self.replaced = None;
    }

    /// The copy takes the file's place, with this behind it.
    pub(crate) fn replace(&mut self, tail: &[u8]) -> Result<u64, String> {
        let mut copy = self.copy.take().ok_or("there is no copy")?;
        copy.extend_from_slice(tail);
        (self.valid, self.is_receiving, self.is_suspect) = (None, false, false);
        self.files += 1;
        let old = std::mem::replace(&mut self.file, copy);
        self.replaced.get_or_insert((old, self.synced));
        self.synced = self.file.len();
        Ok(self.file.len() as u64)
    }

    /// The directory shows the new file for good.
    pub(crate) fn has_replaced(&mut self) {
        self.replaced = None;
    }

    /// No copy is to take the file's place.
    pub(crate) fn discard(&mut self) {
        self.copies += 1;
        (self.copy, self.received, self.is_receiving) = (None, None, false);
    }

    /// The process has ended: what it had written is there.
    pub(crate) fn kill(&mut self) {
        self.discard();
    }

    /// The file is as it was in the beginning.
    pub(crate) fn forget(&mut self) {
        *self = Self::new(std::mem::take(&mut self.first));
    }

    /// What somebody gets who copies the file, as far as that is there for good.
    pub(crate) fn copy_of_file(&self) -> Vec<u8> {
        self.file[..self.synced].to_vec()
    }

    /// What is in the file, while nobody has it open.
    pub(crate) fn file(&self) -> &[u8] {
        &self.file
    }

    /// Another file takes the place of this one, while nobody has it open.
    pub(crate) fn put(&mut self, file: Vec<u8>) {
        *self = Self {
            first: std::mem::take(&mut self.first),
            copies: self.copies,
            files: self.files,
            ..Self::new(file)
        };
    }

    /// The power has gone: of what was not synced any beginning is there, and what is written back
    /// in another order may lack a block before its end.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        self.discard();
        if let Some((file, synced)) = self.replaced.take_if(|_| rng.chance(50)) {
            (self.file, self.synced) = (file, synced);
        }
        self.replaced = None;
        let unsynced = self.file.len() - self.synced;
        let kept = self.synced + rng.below(unsynced + 1);
        if unsynced > 0 && rng.chance(33) {
            self.lose_a_block(rng);
        } else {
            self.file.truncate(kept);
        }
    }

    /// A block of what was not synced is not there.
    fn lose_a_block(&mut self, rng: &mut Rng) {
        // Files are short: a sector is lost as well as a page.
        let block = *rng.pick(&[512, 4096]);
        let (first, last) = (self.synced / block, (self.file.len() - 1) / block);
        let start = rng.between(first, last) * block;
        let end = self.file.len().min(start + block);
        self.file[start.max(self.synced)..end].fill(0);
    }
}
