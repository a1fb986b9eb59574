//! strftime(3) for log lines, in UTC, with `#` for the digits of the milliseconds.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

const DAY_SECONDS: i64 = 86_400;

/// A moment in UTC, broken down.
struct Civil {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    /// 0 is Sunday.
    weekday: usize,
}

impl Civil {
    fn new(seconds: i64) -> Self {
        let days = seconds.div_euclid(DAY_SECONDS);
        let rest = seconds.rem_euclid(DAY_SECONDS);
        // Days of eras of 400 years that begin on 1 March, so that leap days come last.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as usize,
            day: of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            weekday: (days + 4).rem_euclid(7) as usize,
        }
    }
}

/// Formats the moment `wall_ms` milliseconds after 1970 by a template of strftime(3), in UTC; `#`
/// are digits of the milliseconds.
pub fn format_date(template: &str, wall_ms: i64) -> String {
    let mut out = String::new();
    format(template, wall_ms, &mut out);
    out
}

/// Formats the moment `wall_ms` milliseconds after 1970.
pub(super) fn format(template: &str, wall_ms: i64, out: &mut String) {
    let civil = Civil::new(wall_ms.div_euclid(1000));
    let digits = format!("{:03}", wall_ms.rem_euclid(1000));
    let mut digits = digits.chars();
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' => conversion(chars.next().unwrap_or('%'), &civil, wall_ms, out),
            '#' => out.push(digits.next().unwrap_or('0')),
            _ => out.push(c),
        }
    }
}

fn conversion(letter: char, t: &Civil, wall_ms: i64, out: &mut String) {
    let month = MONTHS[t.month - 1];
    let text = match letter {
        'Y' => t.year.to_string(),
        'y' => format!("{:02}", t.year.rem_euclid(100)),
        'm' => format!("{:02}", t.month),
        'd' => format!("{:02}", t.day),
        'e' => format!("{:2}", t.day),
        'H' => format!("{:02}", t.hour),
        'I' => format!("{:02}", (t.hour + 11) % 12 + 1),
        'M' => format!("{:02}", t.minute),
        'S' => format!("{:02}", t.second),
        'T' => format!("{:02}:{:02}:{:02}", t.hour, t.minute, t.second),
        'R' => format!("{:02}:{:02}", t.hour, t.minute),
        'F' => format!("{}-{:02}-{:02}", t.year, t.month, t.day),
        'b' | 'h' => month.to_owned(),
        'a' => DAYS[t.weekday].to_owned(),
        'p' => if t.hour < 12 { "AM" } else { "PM" }.to_owned(),
        's' => wall_ms.div_euclid(1000).to_string(),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        'n' => "\n".to_owned(),
        't' => "\t".to_owned(),
        '%' => "%".to_owned(),
        other => format!("%{other}"),
    };
    out.push_str(&text);
}

#[cfg(test)]
mod tests {
    fn date(template: &str, wall_ms: i64) -> String {
        let mut out = String::new();
        super::format(template, wall_ms, &mut out);
        out
    }

    #[test]
    fn the_pattern_of_the_log_file() {
        let template = "%Y-%m-%dT%H:%M:%S.###Z";
        assert_eq!(date(template, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(date(template, 951_782_400_007), "2000-02-29T00:00:00.007Z");
        assert_eq!(date(template, 1_795_297_531_197), "2026-11-21T21:45:31.197Z");
        assert_eq!(date(template, -1), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn digits_beyond_the_milliseconds_are_zero() {
        assert_eq!(date("%S%%.####", 3107), "03%.1070");
    }

    #[test]
    fn names_of_months_and_days() {
        assert_eq!(date("%a %h %e %T", 1_795_297_531_197), "Sat Nov 21 21:45:31");
    }
}
