//! What Weir wants to reach, and whether a report shows it.

use super::{Column, Report};

/// A bound on one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// The figure is at most so much.
    Most(f64),
    /// The figure is at most so much, or so much above the floor of the same run.
    MostOrFloorPlus(f64, f64),
    /// The figure is at least so much.
    Least(f64),
    /// The figure is at most so many times the first server's.
    TimesFirst(f64),
    /// The figure is at least so many times the first server's.
    LeastTimesFirst(f64),
    /// The figure is at most so many times the floor's.
    TimesFloor(f64),
}

/// A goal: scenario, section (a trailing `*` stands for anything), metric, bound.
type Goal = (&'static str, &'static str, &'static str, Limit);

use Limit::{Least, LeastTimesFirst, Most, MostOrFloorPlus, TimesFirst, TimesFloor};

const RATE: &str = "tx/s, all drained";
const CPU: &str = "server CPU us/tx";
/// The cost at the largest size divided by that at the smallest: flat, measurement aside.
const FLAT: f64 = 1.2;
const STALL_MS: f64 = 10.0;
const CONVERSION_STALL_MS: f64 = 1000.0;
const ECHO: &str = "echo longest wait ms";
const COMMIT: &str = "commit longest wait ms";
/// What others may wait for somebody who asks for too much.
const ECHO_MS: f64 = 100.0;
const COMMIT_MS: f64 = 250.0;

/// How often a cluster has begun another term while there was no need.
const ELECTIONS: &str = "elections";

const GOALS: &[Goal] = &[
    ("ports", "port add", CPU, MostOrFloorPlus(22.0, 12.0)),
    ("ports", "port add", CPU, TimesFirst(1.0 / 15.0)),
    ("ports", "LB add", CPU, MostOrFloorPlus(15.0, 12.0)),
    ("ports", "LB add", CPU, TimesFirst(1.0 / 13.0)),
    ("ports", "port delete", CPU, MostOrFloorPlus(20.0, 12.0)),
    ("ports", "port delete", CPU, TimesFirst(1.0 / 15.0)),
    ("ports", "LB delete", CPU, MostOrFloorPlus(15.0, 12.0)),
    ("ports", "LB delete", CPU, TimesFirst(1.0 / 10.0)),
    ("ports", "memory and disk", "RSS after both adds MB", Most(60.0)),
    ("ports", "memory and disk", "RSS after both adds MB", TimesFirst(0.42)),
    ("ports", "memory and disk", "peak RSS MB", Most(80.0)),
    ("ports", "memory and disk", "peak RSS MB", TimesFirst(0.5)),
    ("ports, short", "port add", CPU, MostOrFloorPlus(20.0, 12.0)),
    ("ports, short", "port add", CPU, TimesFirst(1.0 / 3.4)),
    ("ports, one writer", "port add", CPU, MostOrFloorPlus(25.0, 12.0)),
    ("ports, one writer", "port add", "p50 us", Most(30.0)),
    ("set", "30000 elements", CPU, Most(20.0)),
    ("set", "growth", "*", Most(FLAT)),
    ("big", "100 monitors", CPU, TimesFloor(1.15)),
    ("big", "100 monitors", "tx/s, all drained", LeastTimesFirst(1.5)),
    ("big", "100 monitors", "peak RSS MB", Most(150.0)),
    // As far above the floor as where they were set: it was 5 us, its p50 10 us.
    ("by-name", "update, *", CPU, MostOrFloorPlus(10.0, 5.0)),
    ("by-name", "update, *", "p50 us", MostOrFloorPlus(16.0, 6.0)),
    ("by-name", "select, *", CPU, MostOrFloorPlus(9.0, 4.0)),
    ("by-name", "select, *", "p50 us", MostOrFloorPlus(16.0, 6.0)),
    ("by-name", "delete, *", CPU, MostOrFloorPlus(10.0, 5.0)),
    ("by-name", "delete, *", "p50 us", MostOrFloorPlus(16.0, 6.0)),
    ("by-name", "growth", "*", Most(FLAT)),
    ("by-column", "growth", "*", Most(FLAT)),
    ("may-exist", "growth", "*", Most(FLAT)),
    ("queries", "by name, *", "after: server CPU us", MostOrFloorPlus(0.0, 5.0)),
    ("queries", "by name, *", "after: p50 us", MostOrFloorPlus(0.0, 5.0)),
    ("queries", "by column, one row, *", "after: server CPU us", MostOrFloorPlus(0.0, 5.0)),
    ("queries", "by column, one row, *", "after: p50 us", MostOrFloorPlus(0.0, 5.0)),
    ("queries", "*", "CPU us above by name, a row found", Most(1.0)),
    ("queries", "growth", "*", Most(FLAT)),
    ("conditions", "growth", "*", Most(FLAT)),
    (
        "conditions",
        "1000 clients swap one of 2000 clauses a second",
        // 60 % of a core at 1,000 a second, however many a busy machine lets a server keep up with.
        "server CPU us/swap beside reading the message",
        Most(600.0),
    ),
    ("growth", "growth", "*", Most(FLAT)),
    ("openstack", "growth", "*", Most(FLAT)),
    ("large", "start", "s", Most(0.8)),
    ("large", "start", "MB/s", Least(200.0)),
    ("large", "start", "RSS MB", Most(350.0)),
    ("large", "full dump", "s", Most(0.8)),
    ("large", "full dump", "commit p99 ms", Most(STALL_MS)),
    ("large", "compaction", "commit p99 ms", Most(STALL_MS)),
    ("large", "conversion", "longest stall ms", Most(CONVERSION_STALL_MS)),
    ("large", "memory and disk", "peak RSS MB", Most(450.0)),
    ("tools", "dump", "s", TimesFirst(0.2)),
    ("tools", "dump", "CPU s", TimesFirst(0.2)),
    ("tools", "backup", "s", TimesFirst(0.2)),
    ("tools", "backup", "CPU s", TimesFirst(0.2)),
    ("tools", "restore", "s", TimesFirst(0.2)),
    ("tools", "restore", "CPU s", TimesFirst(0.2)),
    ("tools", "compact", "s", TimesFirst(0.2)),
    ("tools", "compact", "CPU s", TimesFirst(0.2)),
    ("tools", "convert", "s", TimesFirst(0.2)),
    ("tools", "convert", "CPU s", TimesFirst(0.2)),
    ("tools", "*", "peak MB", TimesFirst(0.5)),
    ("tools", "*", "p50 ms", Most(10.0)),
    ("snapshot-memory", "*", "peak of compaction / RSS before", Most(1.15)),
    ("herd", "herd", "s", TimesFirst(1.0 / 3.0)),
    ("herd", "herd", "commit p99 ms", Most(STALL_MS)),
    ("herd", "memory and disk", "peak RSS MB", Most(300.0)),
    ("resume", "*", "found: true %", Least(100.0)),
    ("resume", "*", "s until all are current", TimesFirst(1.0 / 20.0)),
    ("resume", "*", "database / text of the changes", Most(3.0)),
    ("connections", "idle clients", "server bytes a client", Most(30_000.0)),
    ("connections", "set-up", "connections/s", LeastTimesFirst(2.0)),
    ("cluster", "50 writers, port add", RATE, Least(20_000.0)),
    ("cluster", "50 writers, port add", CPU, Most(70.0)),
    ("cluster", "50 writers, LB add", RATE, Least(25_000.0)),
    ("cluster", "50 writers, port delete", RATE, Least(20_000.0)),
    ("cluster", "50 writers, LB delete", RATE, Least(25_000.0)),
    ("cluster", "50 writers, memory and disk", "largest member / lone server", Most(1.1)),
    ("cluster", "1 writer at the leader, *", "p50 us", TimesFloor(1.3)),
    ("cluster", "leader killed", "writes again, election timers, median", Most(1.5)),
    ("cluster", "leader killed", "writes again, election timers, worst", Most(2.5)),
    ("cluster", "50 writers, cluster", ELECTIONS, Most(0.0)),
    ("cluster", "100 KB, cluster", ELECTIONS, Most(0.0)),
    ("cluster", "follower killed", ELECTIONS, Most(0.0)),
    ("cluster", "member returns by a snapshot", ELECTIONS, Most(0.0)),
    ("cluster", "compaction of each member", ELECTIONS, Most(0.0)),
    ("cluster", "*", "acknowledged writes that a member lacks", Most(0.0)),
    ("cluster", "*", "writes answered with an error that a member has", Most(0.0)),
    ("cluster", "*", "failed", Most(0.0)),
    // An election timer, and 300 ms.
    ("cluster", "rolling restart", "longest stall of a writer ms", Most(1_300.0)),
    ("relay", "memory", "relay / standalone", Most(1.05)),
    ("relay", "memory", "peak at first sync / standalone", Most(1.25)),
    ("relay", "depth", "3 relays deep / 1 relay deep", Most(3.0)),
    ("relay", "crowd", "all clients / a tenth of them", Most(FLAT)),
    ("relay", "*", "failed", Most(0.0)),
    ("unfair", "clauses", "monitor_cond*", TimesFirst(1.0 / 3.0)),
    ("unfair", "swap", "answer p50 ms", TimesFirst(1.0 / 3.0)),
    ("unfair", "audience", ECHO, Most(ECHO_MS)),
    ("unfair", "audience", COMMIT, Most(COMMIT_MS)),
    ("unfair", "behind", ECHO, Most(ECHO_MS)),
    ("unfair", "behind", COMMIT, Most(COMMIT_MS)),
    ("unfair", "ranges", ECHO, Most(ECHO_MS)),
    ("unfair", "ranges", COMMIT, Most(COMMIT_MS)),
    ("unfair", "many-rows", ECHO, Most(ECHO_MS)),
    ("unfair", "few-of-many", ECHO, Most(ECHO_MS)),
    ("unfair", "long-texts", ECHO, Most(ECHO_MS)),
    ("unfair", "big-set", ECHO, Most(ECHO_MS)),
    ("unfair", "waits", "server CPU %", Most(5.0)),
    ("unfair", "waits", "echo p50 ms", Most(0.1)),
    ("unfair", "drip*", "100 KB, answer longest ms", Most(1000.0)),
    ("unfair", "scans", COMMIT, Most(COMMIT_MS)),
    ("unfair", "scans", "read longest wait ms", Most(COMMIT_MS)),
    ("unfair", "scans", "beside others / alone", Most(2.0)),
    ("unfair", "gone", "busy after they have left s", Most(1.0)),
    ("unfair", "files", "server CPU %", Most(10.0)),
    ("unfair", "memory", "after a while / fresh start", Most(1.2)),
    ("unfair", "*", "failed", Most(0.0)),
    ("unfair, soak", "soak", "RSS MB flat (1: yes)", Least(1.0)),
    ("unfair, soak", "soak", "files flat (1: yes)", Least(1.0)),
];

/// One goal held against the figures.
#[derive(Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) what: String,
    pub(super) value: f64,
    /// The bound in words.
    pub(super) bound: String,
    pub(super) met: bool,
    /// Digits of the value that matter.
    pub(super) digits: usize,
}

/// Every goal that the report's last server has a figure for.
pub(super) fn judge(report: &Report) -> Vec<Judged> {
    let Some((server, other)) = report.compared() else { return Vec::new() };
    let first = (!other.floor).then_some(other);
    let floor = report.columns.iter().find(|column| column.floor);
    let mut judged = Vec::new();
    for (section, metric) in &report.rows {
        let goals = GOALS.iter().filter(|(scenario, of, name, _)| {
            *scenario == report.about.scenario && fits(of, section) && fits(name, &metric.name)
        });
        for (_, _, _, limit) in goals {
            let Some(value) = server.value(section, &metric.name) else { continue };
            let of = |column: Option<&Column>| column?.value(section, &metric.name);
            let Some((bound, met)) = limit.holds(value, of(first), of(floor)) else { continue };
            let what = format!("{section}: {}", metric.name);
            judged.push(Judged { what, value, bound, met, digits: metric.digits });
        }
    }
    judged
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

impl Limit {
    /// The bound in words and whether it holds; `None` where there is nothing to compare with.
    fn holds(self, value: f64, first: Option<f64>, floor: Option<f64>) -> Option<(String, bool)> {
        Some(match self {
            Most(bound) => (format!("at most {bound}"), value <= bound),
            Least(bound) => (format!("at least {bound}"), value >= bound),
            MostOrFloorPlus(bound, plus) => match floor {
                Some(floor) => (
                    format!("at most {bound}, or floor + {plus} = {:.1}", floor + plus),
                    value <= bound.max(floor + plus),
                ),
                None => (format!("at most {bound}"), value <= bound),
            },
            TimesFirst(times) => {
                let bound = first? * times;
                (format!("at most 1/{:.3} of the first = {bound:.1}", 1.0 / times), value <= bound)
            }
            LeastTimesFirst(times) => {
                let bound = first? * times;
                (format!("at least {times} times the first = {bound:.0}"), value >= bound)
            }
            TimesFloor(times) => {
                let bound = floor? * times;
                (format!("at most {times} times the floor = {bound:.1}"), value <= bound)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{About, Figures};
    use super::*;

    fn report(cpu: [f64; 3]) -> Report {
        let about = About { scenario: "ports".into(), title: String::new(), standard: true };
        let mut report = Report::new(about, String::new(), String::new());
        for (name, cpu) in ["ref", "weir", "floor"].into_iter().zip(cpu) {
            let mut figures = Figures::default();
            figures.push("port add", CPU, 1, cpu);
            report.add(name, name == "floor", figures);
        }
        report
    }

    #[test]
    fn a_goal_is_met_absolutely_or_near_the_floor_and_against_the_first_server() {
        let met = |cpu| judge(&report(cpu)).iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met([400.0, 21.0, 5.0]), [true, true]);
        assert_eq!(met([400.0, 25.0, 15.0]), [true, true]);
        assert_eq!(met([400.0, 28.0, 15.0]), [false, false]);
        assert_eq!(met([300.0, 21.0, 5.0]), [true, false]);
    }

    #[test]
    fn a_star_stands_for_any_ending() {
        assert!(fits("update, *", "update, 4000 rows"));
        assert!(!fits("update, *", "delete, 4000 rows"));
        assert!(fits("growth", "growth") && !fits("growth", "growths"));
    }

    #[test]
    fn a_report_without_goals_has_none() {
        let mut other = report([400.0, 21.0, 5.0]);
        other.about.scenario = "strings".into();
        assert!(judge(&other).is_empty());
    }
}
