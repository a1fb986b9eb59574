//! A file that comes from elsewhere in pieces, to take the place of a database's file: written by a
//! helper, for the system may hold up who writes much.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use weir_net::error::strerror;

use crate::disk::Replacement;
use crate::driver::lane::Lane;

/// The loop's end of such a file, which is removed when this is dropped, unless it is complete.
pub(super) struct Received {
    /// Files so far, to tell what comes of an earlier one.
    pub(super) number: u64,
    pub(super) lane: Lane,
    file: Shared,
}

/// The helper's end.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<State>>);

struct State {
    /// `None` behind a failure, or once it is complete.
    file: Option<Replacement>,
    upto: u64,
    error: String,
}

/// What is to be done next.
pub(crate) enum Piece {
    Write { offset: u64, bytes: Vec<u8> },
    Patch { offset: u64, bytes: Vec<u8> },
}

impl Received {
    /// A file in which nothing stands yet, or why there is none.
    pub(super) fn new(number: u64, file: io::Result<Replacement>) -> Self {
        let error = file.as_ref().err().map(strerror).unwrap_or_default();
        let state = State { file: file.ok(), upto: 0, error };
        Self { number, lane: Lane::new("receive"), file: Shared(Arc::new(Mutex::new(state))) }
    }

    /// For the helper.
    pub(super) fn shared(&self) -> Shared {
        self.file.clone()
    }
}

impl Shared {
    /// Does what is next; also how long the file is then.
    pub(super) fn take(&self, piece: &Piece) -> (u64, Result<(), String>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = state.attempt(|file, upto| match piece {
            Piece::Write { offset, .. } if *offset != upto => Err(ErrorKind::InvalidInput.into()),
            Piece::Write { bytes, .. } => file.write(bytes),
            Piece::Patch { offset, bytes } => file.patch(*offset, bytes),
        });
        (state.upto, result)
    }

    /// Waits until the file is on the disk, and gives it away.
    pub(super) fn finish(&self) -> Result<Replacement, String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.attempt(|file, _| file.sync())?;
        let file = state.file.take();
        "the file is complete".clone_into(&mut state.error);
        file.ok_or_else(|| state.error.clone())
    }
}

impl State {
    fn attempt(
        &mut self,
        attempt: impl FnOnce(&mut Replacement, u64) -> io::Result<()>,
    ) -> Result<(), String> {
        let Some(file) = &mut self.file else { return Err(self.error.clone()) };
        match attempt(file, self.upto) {
            Ok(()) => {
                self.upto = file.len();
                Ok(())
            }
            Err(error) => {
                self.error = strerror(&error);
                self.file = None;
                Err(self.error.clone())
            }
        }
    }
}
