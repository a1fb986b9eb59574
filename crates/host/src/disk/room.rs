//! Room on the disk that a file keeps behind its end, for the few short records that must find some
//! when the disk is full: terms and votes of a clustered database.
//!
//! The file is given blocks that do not count to its length (fallocate(2) with
//! `FALLOC_FL_KEEP_SIZE`). What is appended takes from them, so everything else is refused where it
//! would leave less than [`ROOM_BYTES`] behind it.

use std::io;

use rustix::io::Errno;

/// Bytes that are kept: some hundred terms and votes.
pub(super) const ROOM_BYTES: u64 = 64 << 10;

/// Bytes that are asked for at once where there are so many: to ask takes a system call.
const AHEAD_BYTES: u64 = 256 << 10;

/// What a file keeps.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The file has blocks up to this offset.
    upto: u64,
    /// The file system keeps no room.
    is_unknown: bool,
    /// The disk is said to be full.
    #[cfg(test)]
    is_full: bool,
}

impl Room {
    /// Sees to it that there is room behind a record that is about to be appended: `allocate` gives
    /// the file blocks from an offset on, so many bytes.
    ///
    /// # Errors
    /// The disk is full. Where no room can be kept there is none, and no error.
    pub(super) fn keep(
        &mut self,
        (start, end): (u64, u64),
        mut allocate: impl FnMut(u64, u64) -> Result<(), Errno>,
    ) -> io::Result<()> {
        if self.is_unknown || end.saturating_add(ROOM_BYTES) <= self.upto {
            return Ok(());
        }
        #[cfg(test)]
        if self.is_full {
            return Err(Errno::NOSPC.into());
        }
        let mut result = Ok(());
        for ahead in [AHEAD_BYTES, ROOM_BYTES] {
            let upto = end.saturating_add(ahead);
            result = allocate(start, upto.saturating_sub(start));
            match result {
                Ok(()) => {
                    self.upto = upto;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(Errno::INTR) => return Ok(()),
                Err(_) => {
                    self.is_unknown = true;
                    return Ok(());
                }
            }
        }
        result.map_err(io::Error::from)
    }

    /// The file was cut: blocks behind its end are gone.
    pub(super) fn forget(&mut self) {
        self.upto = 0;
        #[cfg(test)]
        (self.is_full = false);
    }

    /// Whether the file system keeps no room.
    #[cfg(test)]
    pub(super) fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The disk has room for nothing more, as far as the file asks.
    #[cfg(test)]
    pub(super) fn fill(&mut self) {
        (self.is_full, self.upto) = (true, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room for a file.
    fn disk(bytes: u64) -> impl FnMut(u64, u64) -> Result<(), Errno> {
        move |start, len| if start + len <= bytes { Ok(()) } else { Err(Errno::NOSPC) }
    }

    #[test]
    fn a_record_that_would_take_the_room_is_refused() {
        let mut room = Room::default();
        let size = ROOM_BYTES + 1000;
        room.keep((0, 600), disk(size)).unwrap();
        room.keep((600, 1000), disk(size)).unwrap();
        let error = room.keep((1000, 1001), disk(size)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        // What may take it has taken some: there must be more before anything else is written.
        room.keep((1100, 1200), disk(size)).unwrap_err();
        room.keep((1100, 1200), disk(size + 200)).unwrap();
    }

    #[test]
    fn the_system_is_asked_for_many_records_at_once() {
        let mut asked = 0;
        let mut room = Room::default();
        for n in 0..1000 {
            let record = (n * 300, (n + 1) * 300);
            room.keep(record, |_, _| {
                asked += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(asked, 2);
        room.forget();
        room.keep((0, 1), |_, _| Err(Errno::DQUOT)).unwrap_err();
    }

    #[test]
    fn where_no_room_can_be_kept_all_is_written() {
        let mut room = Room::default();
        room.keep((0, 10), |_, _| Err(Errno::OPNOTSUPP)).unwrap();
        room.keep((10, 20), |_, _| panic!("the answer is known")).unwrap();
    }
}
