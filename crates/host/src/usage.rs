//! What a thread has used of the machine (getrusage(2)), by a call that has no safe wrapper.

use std::mem::MaybeUninit;

/// Sums since the thread began, or what has come to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
}

impl Usage {
    /// What the calling thread has used; nothing where the system does not say.
    pub(crate) fn of_this_thread() -> Self {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the call writes one `rusage` through the pointer, or nothing; all of its fields are
        // integers, for which zeroes are a value.
        #[allow(unsafe_code)]
        let usage = unsafe {
            libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
            usage.assume_init()
        };
        let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
        let micros = |time: libc::timeval| {
            let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
            seconds.unwrap_or(0) * 1_000_000 + micros.unwrap_or(0)
        };
        Self {
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            reads: count(usage.ru_inblock),
            writes: count(usage.ru_oublock),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }
    }

    /// What has come to the sums since they were `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let gained = |field: fn(&Self) -> u64| field(&self).saturating_sub(field(&before));
        Self {
            user_us: gained(|usage| usage.user_us),
            system_us: gained(|usage| usage.system_us),
            minor_faults: gained(|usage| usage.minor_faults),
            major_faults: gained(|usage| usage.major_faults),
            reads: gained(|usage| usage.reads),
            writes: gained(|usage| usage.writes),
            voluntary_switches: gained(|usage| usage.voluntary_switches),
            involuntary_switches: gained(|usage| usage.involuntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_what_it_touches() {
        let before = Usage::of_this_thread();
        let pages = vec![1_u8; 64 << 20];
        assert_eq!(pages.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 64 << 20);
        let used = Usage::of_this_thread().since(before);
        assert!(used.minor_faults > 0 && used.user_us + used.system_us > 0, "{used:?}");
        assert_eq!(before.since(before), Usage::default());
    }
}
