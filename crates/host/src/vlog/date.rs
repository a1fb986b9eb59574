//! strftime(3) for log lines, with `#` for the digits of the milliseconds.
//!
//! The C library formats, as it does for the reference: only it knows all conversions and which
//! time it is here (`TZ`, /etc/localtime). A file of its own because its functions are `unsafe`.

use std::ffi::CString;
use std::mem::MaybeUninit;

/// Where the clock hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
    Utc,
    Local,
}

/// Bytes that a date is given at first: more than any usual template wants.
const DATE_BYTES: usize = 256;

/// Longest date; one that asks for more (`%99999Y`) prints nothing.
const DATE_BYTES_MAX: usize = 64 << 10;

/// Formats the moment `wall_ms` milliseconds after 1970 by a template of strftime(3), in UTC; `#`
/// are digits of the milliseconds.
pub fn format_date(template: &str, wall_ms: i64) -> String {
    let mut out = String::new();
    format(template, wall_ms, Zone::Utc, &mut out);
    out
}

/// Formats the moment `wall_ms` milliseconds after 1970.
pub(super) fn format(template: &str, wall_ms: i64, zone: Zone, out: &mut String) {
    let Some(date) = broken_down(wall_ms.div_euclid(1000), zone) else { return };
    let text = strftime(template, &date);
    let text = String::from_utf8_lossy(&text);
    let milliseconds = format!("{:03}", wall_ms.rem_euclid(1000));
    let mut digits = milliseconds.chars();
    for c in text.chars() {
        if c == '#' {
            out.push(digits.next().unwrap_or('0'));
        } else {
            digits = milliseconds.chars();
            out.push(c);
        }
    }
}

/// Year, month and so on; none of a moment whose year is no number.
#[allow(unsafe_code)]
fn broken_down(seconds: i64, zone: Zone) -> Option<libc::tm> {
    let seconds = libc::time_t::try_from(seconds).ok()?;
    let mut date = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both read one number and write one structure, which are ours; null says that nothing
    // is written. All zeros are a structure too. No thread changes `TZ`.
    unsafe {
        let written = match zone {
            Zone::Utc => libc::gmtime_r(&raw const seconds, date.as_mut_ptr()),
            Zone::Local => libc::localtime_r(&raw const seconds, date.as_mut_ptr()),
        };
        (!written.is_null()).then(|| date.assume_init())
    }
}

/// What strftime(3) writes, whose template ends at a NUL.
#[allow(unsafe_code)]
fn strftime(template: &str, date: &libc::tm) -> Vec<u8> {
    let template = template.split('\0').next().unwrap_or_default();
    // Zero bytes written are too little room or an empty date: with a byte more only the first.
    let template = CString::new(format!("{template}.")).expect("it was cut at the first NUL");
    let mut text = Vec::new();
    let mut room = DATE_BYTES;
    while room <= DATE_BYTES_MAX {
        text.resize(room, 0);
        // SAFETY: it writes at most `room` bytes to `text`, which has as many. The template ends
        // in NUL. The name of the zone is the C library's own, which never frees it.
        let length = unsafe {
            libc::strftime(text.as_mut_ptr().cast(), room, template.as_ptr(), &raw const *date)
        };
        if let Some(length) = length.checked_sub(1) {
            text.truncate(length);
            return text;
        }
        room *= 2;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::{Zone, format, format_date as date};

    #[test]
    fn the_pattern_of_the_log_file() {
        let template = "%Y-%m-%dT%H:%M:%S.###Z";
        assert_eq!(date(template, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(template, 951_782_400_007), "2000-02-29T00:00:00.007Z");
        assert_eq!(date(template, 1_795_297_531_197), "2026-11-21T21:45:31.197Z");
        assert_eq!(date(template, -1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn digits_beyond_the_milliseconds_are_zero_and_each_group_begins_anew() {
        assert_eq!(date("%S%%.#### #|##", 3107), "03%.1070 1|10");
    }

    #[test]
    fn every_conversion_of_the_c_library() {
        let saturday = 1_795_297_531_197;
        assert_eq!(date("%a %h %e %T", saturday), "Sat Nov 21 21:45:31");
        assert_eq!(date("%A, %d %B; %j %U %V %u", saturday), "Saturday, 21 November; 325 46 47 6");
        assert_eq!(date("%D %I:%M %p %Z %z", saturday), "11/21/26 09:45 PM GMT +0000");
        assert_eq!(date("%! %5Y %-e", saturday), "%! 02026 21");
    }

    #[test]
    fn what_cannot_be_printed_is_empty() {
        assert_eq!(date("", 0), "");
        assert_eq!(date("%S\0%S", 0), "00");
        assert_eq!(date("%99999999Y", 0), "");
        assert_eq!(date("%Y", i64::MAX).len(), "292278994".len());
        assert_eq!(date("%3000Y", 0).len(), 3000);
    }

    #[test]
    fn local_time_is_the_machines() {
        let mut out = String::new();
        format("%s", 1_795_297_531_197, Zone::Local, &mut out);
        assert_eq!(out, "1795297531", "the local time, taken back, is the same moment");
    }
}
