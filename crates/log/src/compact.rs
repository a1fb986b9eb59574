//! When a standalone file is compacted without being asked.

/// A file with fewer records than this beyond its snapshot has not grown enough to be compacted.
pub const RECORDS_MIN: u64 = 100;
/// A file below this size, in bytes, has not grown enough to be compacted.
pub const SIZE_MIN: u64 = 10 << 20;
/// Shortest pause between compactions, in milliseconds.
pub const PAUSE_MS_MIN: u64 = 10 * 60 * 1000;
/// Each file waits up to this much longer than [`PAUSE_MS_MIN`], in milliseconds, so that not all
/// are compacted at once.
pub const JITTER_MS: u64 = 10 * 60 * 1000;
/// So long after a compaction any record is reason enough for the next one, in milliseconds.
pub const PAUSE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Whether a file with `records` beyond a snapshot of `snapshot_size` bytes, compacted `since_ms`
/// ago, is due.
pub fn is_due(records: u64, size: u64, snapshot_size: u64, since_ms: u64, jitter_ms: u64) -> bool {
    if records == 0 || since_ms < PAUSE_MS_MIN + jitter_ms % JITTER_MS {
        return false;
    }
    let has_grown = records >= RECORDS_MIN && size > SIZE_MIN && size / 2 > snapshot_size;
    has_grown || since_ms >= PAUSE_MS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_have_grown_and_rested() {
        let hour = 60 * 60 * 1000;
        assert!(is_due(100, 30 << 20, 14 << 20, hour, 0));
        assert!(!is_due(99, 30 << 20, 14 << 20, hour, 0));
        assert!(!is_due(100, 30 << 20, 15 << 20, hour, 0));
        assert!(!is_due(100, 10 << 20, 1 << 20, hour, 0));
        assert!(!is_due(100, 30 << 20, 14 << 20, PAUSE_MS_MIN + 10, 20));
        assert!(is_due(1, 100, 100, PAUSE_MS_MAX, 0));
        assert!(!is_due(0, 100, 100, PAUSE_MS_MAX, 0));
    }
}
