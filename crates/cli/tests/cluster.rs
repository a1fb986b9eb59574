//! Clusters of three: the files of the packaged servers, served by Weir and back, under load, with
//! members that are killed, stopped for a while, or changed for the other program.
//!
//! `WEIR_CLUSTER_ROUNDS` repeats what is random that often.

mod support;
mod trio;

use std::time::Duration;

use rustix::process::Signal;
use support::{err, reference};
use trio::{ALL, Program, SCHEMA, Trio};

/// How often to repeat what depends on when things happen.
fn rounds(by_itself: u32) -> u32 {
    let rounds = std::env::var("WEIR_CLUSTER_ROUNDS").ok();
    rounds.map_or(by_itself, |rounds| rounds.parse().expect("a number of rounds"))
}

fn others(of: usize) -> Vec<usize> {
    ALL.into_iter().filter(|at| *at != of).collect()
}

#[test]
fn files_of_packaged_members_are_served_and_go_back() {
    let Some(mut trio) = Trio::packaged(SCHEMA) else { return };
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("packaged {at}")));
    trio.stop_all();
    trio.complaints();

    trio.start_all(Program::Weir);
    for at in ALL {
        assert_eq!(trio.names(at), ["packaged 0", "packaged 1", "packaged 2"], "member {at}");
    }
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("weir {at}")));
    trio.check_files();
    trio.stop_all();
    trio.check_files();
    assert_eq!(trio.complaints(), [""; 0]);

    trio.start_all(Program::Packaged);
    ALL.into_iter().for_each(|at| trio.insert(at, &format!("back {at}")));
    let expected: Vec<String> = ["back", "packaged", "weir"]
        .iter()
        .flat_map(|word| ALL.map(|at| format!("{word} {at}")))
        .collect();
    support::eventually("each packaged member has everything", || {
        ALL.into_iter().all(|at| trio.names(at) == expected)
    });
    trio.stop_all();
    trio.check_files();
}

#[test]
fn members_change_their_program_one_by_one_under_load() {
    let Some(mut trio) = Trio::packaged(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    trio.complaints();
    for program in [Program::Weir, Program::Packaged] {
        for at in ALL {
            trio.stop(at);
            trio.start(at, program);
            // Whoever is of the program that two members run does its work.
            match at {
                0 => load.go_on(10, &[1, 2]),
                1 => load.go_on(10, &[0, 1]),
                _ => load.go_on(10, &ALL),
            }
        }
        trio.settle(&ALL);
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
    assert_eq!(trio.complaints(), [""; 0]);
}

#[test]
fn a_killed_member_takes_nothing_with_it() {
    let Some(mut trio) = Trio::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for round in 0..rounds(3) {
        let leader = trio.settle(&ALL);
        // A follower every third time.
        let killed = if round % 3 == 1 { (leader + 1) % ALL.len() } else { leader };
        trio.kill(killed);
        load.go_on(20, &others(killed));
        trio.start(killed, Program::Weir);
        load.go_on(20, &ALL);
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
}

#[test]
fn a_leader_that_stands_still_is_followed_by_another() {
    let Some(mut trio) = Trio::weir(SCHEMA) else { return };
    let load = trio.load();
    load.go_on(20, &ALL);
    for _ in 0..rounds(1) {
        let leader = trio.settle(&ALL);
        trio.signal(leader, Signal::STOP);
        let stopped = std::time::Instant::now();
        load.go_on(20, &others(leader));
        std::thread::sleep(Duration::from_secs(3).saturating_sub(stopped.elapsed()));
        trio.signal(leader, Signal::CONT);
        load.go_on(20, &ALL);
    }
    println!("longest waits: {:?}", load.check(&trio));
    trio.stop_all();
    trio.check_files();
}

#[test]
fn tools_read_the_files_while_they_are_written() {
    let Some(trio) = Trio::weir(SCHEMA) else { return };
    let tool = reference("ovsdb-tool").expect("it has been used before");
    let load = trio.load();
    load.go_on(5, &ALL);
    for round in 0..40 * rounds(1) {
        for at in ALL {
            for question in ["check-cluster", "show-log", "db-cid"] {
                let asked = trio.scratch.run(&tool, &[question, &trio.file(at)]);
                let said = err(&asked);
                let is_well = asked.status.success() && said.is_empty();
                assert!(is_well, "{question} of member {at}, round {round}: {said}");
            }
        }
    }
    load.go_on(5, &ALL);
    load.check(&trio);
}
