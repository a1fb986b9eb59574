//! Weir against the installed reference server: generated schemas and transactions, every answer,
//! monitor stream and file compared.
//!
//! `ORACLE_TXNS` sets how many transactions, `ORACLE_SEED` the first seed. A failure prints what it
//! was shrunk to; saved to a file, `ORACLE_REPLAY=FILE` plays it again. `ORACLE_FAILURES=N` goes on
//! until N seeds have failed. `ORACLE_IDS=1` lets Weir give ids to states, as it does in service: they
//! are left out of what is compared.

use std::collections::BTreeSet;

use weir_testkit::differential::run::{Report, run};
use weir_testkit::differential::shrink::{replay, shrink};
use weir_testkit::normalise::replace_uuids;
use weir_testkit::process::both;
use weir_testkit::reach::Reach;

/// Transactions of one schema.
const TRANSACTIONS_A_SEED: usize = 400;

/// Every required case must be met as often, in a run of the full length.
const REQUIRED_HITS: u64 = 100;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The last lines of a difference without what belongs to one case only.
fn kind_of(difference: &str) -> String {
    let text = difference.rsplit("difference ").next().unwrap_or(difference);
    let text = replace_uuids(text, |_| Some("U"));
    text.chars().filter(|c| !c.is_ascii_digit()).take(300).collect()
}

#[test]
fn generated_transactions_have_the_same_effects() {
    let Some(mut programs) = both("oracle") else { return };
    if std::env::var_os("ORACLE_IDS").is_some() {
        programs.1.options = &[];
    }
    let wanted = number("ORACLE_TXNS", 24_000);
    let mut seed = number("ORACLE_SEED", 1);
    let mut total = Report::default();
    let patience = number("ORACLE_FAILURES", 1);
    let (mut failures, mut failed) = (BTreeSet::new(), 0);
    while (total.transactions as u64) < wanted {
        match run(&programs, seed, TRANSACTIONS_A_SEED) {
            Ok(report) => total.merge(&report),
            Err(failure) => {
                let case = shrink(&programs, &failure);
                let told =
                    case.as_ref().map_or(failure.finding.clone(), |one| one.difference.clone());
                let text = case.map_or(failure.to_string(), |case| case.to_string());
                println!("seed {seed}:\n{text}\n");
                if !failures.insert(kind_of(&told)) {
                    println!("(of a kind met before)");
                }
                failed += 1;
                assert!(failed < patience, "{} kinds of difference, see above", failures.len());
            }
        }
        seed += 1;
    }
    assert!(failures.is_empty(), "{} kinds of difference, see above", failures.len());
    println!("{} transactions\n{}", total.transactions, total.reach.report());
    println!("known differences met: {:#?}", total.met);
    println!("{} cases required", Reach::required().len());
    let missing = total.reach.missing(REQUIRED_HITS.min(wanted / 200));
    assert!(missing.is_empty(), "not reached often enough: {missing:#?}");
}

#[test]
fn a_saved_case_is_played_again() {
    let Some(file) = std::env::var_os("ORACLE_REPLAY") else {
        println!("SKIP a_saved_case_is_played_again: ORACLE_REPLAY names no file");
        return;
    };
    let Some(programs) = both("replay") else { return };
    let text = std::fs::read_to_string(file).expect("the saved case");
    if let Some(difference) = replay(&programs, &text).expect("a saved case") {
        panic!("{difference}");
    }
}
