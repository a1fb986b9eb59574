//! The scenarios: one table, which the command line, `all`, `schema` and the help go by.

use std::process::ExitCode;

use serde_json::Value;

use crate::args::Args;
use crate::by_key::{self, Key};
use crate::one_core::OneCore;
use crate::report::Report;
use crate::rounds::Bench;
use crate::{
    Error, big, cluster, conditions, connections, dbfile, growth, herd, large, openstack, ports,
    queries, relay, resume, set, steps, strings, tools, unfair,
};

/// A load test.
struct Scenario {
    name: &'static str,
    /// What the help says of it, a line each.
    about: &'static [&'static str],
    /// The scenario's own options in the help, a line each.
    options: &'static [&'static str],
    /// The schema of the database that a running server must have; none where the scenario starts
    /// the servers itself.
    schema: Option<fn() -> Result<Value, Error>>,
    run: fn(&mut Args, &Bench) -> Result<Report, Error>,
}

const BY_KEY_OPTIONS: &[&str] = &[
    "--rows N[,N...] (4000,60000) --seconds N  for each kind (5)",
    "--alternate-key  declares the column as one, to all but the server `ref`",
];

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "ports",
        about: &["ports and load balancers come and go in OVN_Northbound"],
        options: &[
            "--rows N  ports, and as many load balancers (30000)",
            "--writers N  clients (50)",
            "--monitors N  clients that watch everything (100)",
            "--cycles N  add and remove all rows N times, figures summed (1)",
            "--rate N  open loop: N transactions a second, latency from the due time",
            "--one-shot  a connection for each transaction, as a command-line client makes",
            "--drain-us N  monitors are drained every N microseconds, 0: all the time (500)",
            "--schema FILE  default /usr/share/ovn/ovn-nb.ovsschema",
        ],
        schema: Some(northbound),
        run: ports::run,
    },
    Scenario {
        name: "set",
        about: &["one element more or less in a large set"],
        options: &[
            "--sizes N[,N...] (300,30000) --ops N (20000) --writers N (20)",
            "--monitors N (10) --drain-us N --seconds N  at most, of each size (5)",
        ],
        schema: Some(|| Ok(set::schema())),
        run: set::run,
    },
    Scenario {
        name: "big",
        about: &["transactions of 100 KB to many monitors"],
        options: &[
            "--ops N (1000) --monitors N[,N...] (100) --writers N (50)",
            "--gigabytes N  all that monitors get at each size, at most (20)",
        ],
        schema: Some(northbound),
        run: big::run,
    },
    Scenario {
        name: "by-name",
        about: &["update, select and delete by a unique name, one client"],
        options: BY_KEY_OPTIONS,
        schema: Some(|| Ok(by_key::schema(false))),
        run: |args, bench| by_key::run(Key::Name, args, bench),
    },
    Scenario {
        name: "by-column",
        about: &["the same by a column that is in no index, ten rows a value"],
        options: BY_KEY_OPTIONS,
        schema: Some(|| Ok(by_key::schema(false))),
        run: |args, bench| by_key::run(Key::Column, args, bench),
    },
    Scenario {
        name: "may-exist",
        about: &["the same by name, where an update makes sure that the row is there"],
        options: BY_KEY_OPTIONS,
        schema: Some(|| Ok(by_key::schema(false))),
        run: |args, bench| by_key::run(Key::MayExist, args, bench),
    },
    Scenario {
        name: "queries",
        about: &["rows of a large table found without a key, and with it; first rows of monitors"],
        options: &[
            "--rows N[,N...] (4000,60000,1000000) --seconds N  of each kind (2)",
            "--kinds KIND[,...]  name, one, column, range, element, pair, reference, page,",
            "                    monitor-name, monitor-column",
        ],
        schema: None,
        run: queries::run,
    },
    Scenario {
        name: "conditions",
        about: &["monitors of a few rows each, while other rows change"],
        options: &[
            "--monitors N[,N...] (0,200,5000) --ops N (20000) --writers N (20)",
            "--seconds N  at most, of each number of monitors (5)",
            "--swappers N  clients that swap a clause a second (1000), 0: none",
            "--clauses N  of each of them (2000) --swap-seconds N (60)",
        ],
        schema: Some(|| Ok(conditions::schema())),
        run: conditions::run,
    },
    Scenario {
        name: "growth",
        about: &["cost from 100 to 1,000,000 rows and from 10 to 100,000 elements"],
        options: &[
            "--rows N[,N...] --elements N[,N...] --ops N (20000) --writers N (20)",
            "--monitors N (10) --drain-us N",
            "--seconds N  at most, of each kind at each size (5)",
        ],
        schema: None,
        run: growth::run,
    },
    Scenario {
        name: "openstack",
        about: &["ports with eight ACLs each, and a client that follows"],
        options: &["--ports N (800)"],
        schema: Some(northbound),
        run: openstack::run,
    },
    Scenario {
        name: "connections",
        about: &["thousands of clients, most of them idle"],
        options: &[
            "--clients N (5000) --seconds N  of connections coming and going (3)",
            "--ops N (5000)",
        ],
        schema: Some(|| Ok(connections::schema())),
        run: connections::run,
    },
    Scenario {
        name: "strings",
        about: &["long strings with quotes and control characters"],
        options: &["--sizes N[,N...] (100000,10000000,100000000) --volume BYTES"],
        schema: Some(|| Ok(strings::schema())),
        run: strings::run,
    },
    Scenario {
        name: "herd",
        about: &["hundreds of clients ask for everything at once"],
        options: &["--clients N (500) --megabytes N (24)"],
        schema: None,
        run: herd::run,
    },
    Scenario {
        name: "resume",
        about: &["clients come back at once and name the last change that they know"],
        options: resume::OPTIONS,
        schema: None,
        run: resume::run,
    },
    Scenario {
        name: "large",
        about: &["start, full dump, compaction and conversion of a large database"],
        options: &["--megabytes N (162) --records N (1)"],
        schema: None,
        run: large::run,
    },
    Scenario {
        name: "snapshot-memory",
        about: &["memory that a compaction needs beyond the data"],
        options: &["--megabytes N[,N...] (125,270)"],
        schema: None,
        run: large::snapshots,
    },
    Scenario {
        name: "tools",
        about: &[
            "dump, backup, restore, compact, convert and short commands of the peers'",
            "ovsdb-client and ovsdb-tool",
        ],
        options: &["--megabytes N (162) --one-shots N (50)"],
        schema: None,
        run: tools::run,
    },
    Scenario {
        name: "steps",
        about: &["requests that take long, and how long others wait meanwhile"],
        options: &["--megabytes N (162) --monitors N (100) --ops N (100000)"],
        schema: None,
        run: steps::run,
    },
    Scenario {
        name: "cluster",
        about: &["clusters of three: the load of ports, 100 KB, slow disks, members that go"],
        options: cluster::OPTIONS,
        schema: None,
        run: cluster::run,
    },
    Scenario {
        name: "relay",
        about: &["relays before a cluster: clients, memory, and how long a change takes"],
        options: relay::OPTIONS,
        schema: None,
        run: relay::run,
    },
    Scenario {
        name: "unfair",
        about: &["clients that ask for too much, and what others wait for it"],
        options: unfair::OPTIONS,
        schema: Some(|| Ok(unfair::schema())),
        run: unfair::run,
    },
];

fn northbound() -> Result<Value, Error> {
    dbfile::read_schema(ports::SCHEMA.as_ref(), "of Debian's package ovn-common")
}

/// The option that has driver and servers share one core.
pub(crate) const ONE_CORE: &str = "--one-core";

fn find(name: &str) -> Result<&'static Scenario, Error> {
    SCENARIOS
        .iter()
        .find(|scenario| scenario.name == name)
        .ok_or_else(|| Error::Usage(format!("unknown command '{name}' (see weir bench --help)")))
}

/// Whether there is such a scenario; asked before servers are looked for.
pub(crate) fn known(name: &str) -> Result<(), Error> {
    find(name).map(drop)
}

/// Runs one scenario, on one core where the options say so.
pub(crate) fn run(name: &str, args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let scenario = find(name)?;
    let pinned = args.flag(ONE_CORE).then(OneCore::begin).transpose()?;
    let mut report = (scenario.run)(args, bench)?;
    if pinned.is_some() {
        report.add_to_title("on one core");
    }
    Ok(report)
}

/// Prints the schema of the database that a running server must have for a scenario.
pub(crate) fn print_schema(words: &[String]) -> Result<ExitCode, Error> {
    let name = words.first().map_or("", String::as_str);
    let schema = SCENARIOS.iter().find(|scenario| scenario.name == name).and_then(|s| s.schema);
    let Some(schema) = schema else {
        return Err(Error::Usage(format!("schema: no scenario '{name}' with one")));
    };
    println!("{:#}", schema()?);
    Ok(ExitCode::SUCCESS)
}

/// Columns in front of what the help says.
const INDENT: usize = 19;

/// The help, with the scenarios and their options in it.
pub(crate) fn help() -> String {
    let mut list = String::new();
    for scenario in SCENARIOS {
        entry(&format!("  {}", scenario.name), scenario.about, &mut list);
    }
    let mut options = String::new();
    // Neighbours with equal options share a heading.
    for equal in SCENARIOS.chunk_by(|one, next| one.options == next.options) {
        let names: Vec<_> = equal.iter().map(|scenario| scenario.name).collect();
        let lines = equal.first().map_or(&[][..], |scenario| scenario.options);
        entry(&format!("{}:", names.join(", ")), lines, &mut options);
    }
    include_str!("help.txt").replace("@SCENARIOS@\n", &list).replace("@OPTIONS@\n", &options)
}

/// A heading, with the lines beside it, or below it if it is too long for that.
fn entry(heading: &str, lines: &[&str], out: &mut String) {
    out.push_str(heading);
    let mut column = heading.len();
    if column >= INDENT {
        out.push('\n');
        column = 0;
    }
    for line in lines {
        out.push_str(&" ".repeat(INDENT - column));
        out.push_str(line);
        out.push('\n');
        column = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_once_in_the_help_with_its_options() {
        let help = help();
        assert!(!help.contains('@'), "a place is left open");
        for scenario in SCENARIOS {
            let line = format!("\n  {:<17}{}", scenario.name, scenario.about[0]);
            assert_eq!(help.matches(&line).count(), 1, "{}", scenario.name);
            assert!(help.contains(scenario.options[0]), "{}", scenario.name);
        }
        assert!(help.contains("\nby-name, by-column, may-exist:\n                   --rows N"));
        assert!(help.lines().all(|line| line.len() <= 100), "a long line");
    }

    #[test]
    fn names_are_unique_and_no_other_command_is_called_so() {
        for (index, scenario) in SCENARIOS.iter().enumerate() {
            assert!(SCENARIOS.iter().skip(index + 1).all(|other| other.name != scenario.name));
            assert!(!["all", "schema", "report", "make-db", "help"].contains(&scenario.name));
            assert!(known(scenario.name).is_ok());
        }
        assert!(known("nonsense").is_err());
    }

    /// `all` has a line for each scenario, and none of another name.
    #[test]
    fn the_table_of_all_has_every_scenario() {
        for name in crate::all::scenarios() {
            assert!(known(name).is_ok(), "{name}");
        }
        for scenario in SCENARIOS {
            assert!(crate::all::scenarios().any(|name| name == scenario.name), "{}", scenario.name);
        }
    }
}
