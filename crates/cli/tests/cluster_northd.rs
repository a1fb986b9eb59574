//! Three `ovn-northd` on clusters of Weir: leadership of the daemons and of the members changes hands
//! twenty times, one daemon at most is active, and the flows are those that one alone makes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::group::{ALL, Group, Program};
use crate::support::{Running, Scratch, err, eventually, listens, out, reference};

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";

/// How often leadership changes hands: four times in each way.
const HANDOVERS: usize = 20;

/// Who has to hand over, and how.
#[derive(Clone, Copy, Debug)]
enum Handover {
    DaemonKilled,
    SouthStopped,
    DaemonStopped,
    SouthKilled,
    NorthKilled,
}

const WAYS: [Handover; 5] = [
    Handover::DaemonKilled,
    Handover::SouthStopped,
    Handover::DaemonStopped,
    Handover::SouthKilled,
    Handover::NorthKilled,
];

/// Three daemons on the same databases.
struct Daemons {
    scratch: Scratch,
    databases: [String; 2],
    children: [Option<Child>; 3],
}

fn control(at: usize) -> String {
    format!("northd{at}.ctl")
}

fn northd(scratch: &Scratch, [nb, sb]: &[String; 2], control: &str) -> Command {
    let mut daemon = scratch.command(reference("ovn-northd").expect("it was here before"));
    daemon.args(["-vconsole:off", "-vsyslog:off", "--unixctl", &scratch.text(control)]);
    daemon.arg(format!("--ovnnb-db={nb}")).arg(format!("--ovnsb-db={sb}"));
    daemon
}

fn ask(scratch: &Scratch, at: usize, command: &str) -> Option<String> {
    let appctl = reference("ovs-appctl").expect("it comes with the server");
    let asked = scratch.run(appctl, &["-T", "5", "-t", &scratch.text(&control(at)), command]);
    asked.status.success().then(|| out(&asked))
}

/// Who says that it is active.
fn active(scratch: &Scratch) -> Vec<usize> {
    let is_active =
        |at: &usize| ask(scratch, *at, "status").is_some_and(|it| it.contains("active"));
    ALL.into_iter().filter(is_active).collect()
}

impl Daemons {
    fn start(&mut self, at: usize) {
        let mut daemon = northd(&self.scratch, &self.databases, &control(at));
        self.children[at] = Some(daemon.spawn().expect("the daemon starts"));
        eventually("the daemon answers", || ask(&self.scratch, at, "status").is_some());
    }

    fn wait_for_one(&self) -> usize {
        let mut one = None;
        eventually("one daemon is active", || {
            let all = active(&self.scratch);
            one = all.first().copied();
            all.len() == 1
        });
        one.expect("just seen")
    }

    /// Ends a daemon, by its own means or not, and waits for that.
    fn end(&mut self, at: usize, is_killed: bool) {
        let mut child = self.children[at].take().expect("it runs");
        if is_killed {
            child.kill().expect("it runs");
        } else {
            ask(&self.scratch, at, "exit").expect("it is told to end");
        }
        child.wait().expect("a child");
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Says so whenever two daemons are found active, and still are a moment later.
fn watch(scratch: &Scratch, is_over: &AtomicBool) -> Vec<[Vec<usize>; 2]> {
    let mut seen = vec![];
    while !is_over.load(Ordering::Relaxed) {
        let first = active(scratch);
        if first.len() > 1 {
            let second = active(scratch);
            if first.iter().filter(|at| second.contains(at)).count() > 1 {
                seen.push([first, second]);
            }
        }
    }
    seen
}

fn nbctl(scratch: &Scratch, db: &str, args: &[&str]) {
    let nbctl = reference("ovn-nbctl").expect("it comes with ovn-northd");
    let done = scratch.run(nbctl, &[&["-t", "60", "--db", db], args].concat());
    assert!(done.status.success(), "ovn-nbctl {args:?}: {}", err(&done));
}

/// Address sets of routers are called by the numbers of datapaths, which follow the order in which
/// those came.
fn without_numbers(flow: &str) -> String {
    let mut pieces = flow.split("_rtr_lb_");
    let first = pieces.next().unwrap_or_default().to_owned();
    let is_digit = |letter: char| letter.is_ascii_digit();
    pieces.fold(first, |text, piece| text + "_rtr_lb" + piece.trim_start_matches(is_digit))
}

/// All flows, each with its datapath's name, without UUIDs.
fn flows(scratch: &Scratch, db: &str) -> BTreeSet<String> {
    let sbctl = reference("ovn-sbctl").expect("it comes with ovn-northd");
    let list = scratch.run(sbctl, &["-t", "60", "--db", db, "lflow-list"]);
    assert!(list.status.success(), "{}", err(&list));
    let (mut datapath, mut flows) = (String::new(), BTreeSet::new());
    for line in out(&list).lines() {
        if line.starts_with("Datapath: ") {
            let words = line.split(' ').filter(|word| !word.starts_with('('));
            datapath = words.collect::<Vec<_>>().join(" ");
        } else {
            flows.insert(format!("{datapath}: {}", without_numbers(line.trim())));
        }
    }
    flows
}

/// A router and two switches, with what makes flows of many kinds.
const NETWORK: &[&str] = &[
    "ls-add first -- lsp-add first p1 -- lsp-set-addresses p1 00:00:00:00:00:01\\ 10.0.0.5",
    "ls-add second -- lsp-add second p2 -- lsp-set-addresses p2 00:00:00:00:00:02\\ 10.1.0.5",
    "lr-add r -- lrp-add r r1 00:00:00:00:ff:01 10.0.0.1/24 -- lrp-add r r2 00:00:00:00:ff:02 10.1.0.1/24",
    "lsp-add first s1 -- lsp-set-type s1 router -- lsp-set-addresses s1 router -- lsp-set-options s1 router-port=r1",
    "lsp-add second s2 -- lsp-set-type s2 router -- lsp-set-addresses s2 router -- lsp-set-options s2 router-port=r2",
    "acl-add first to-lport 1000 tcp allow-related -- acl-add second from-lport 900 udp drop",
    "lb-add lb 10.0.0.100:80 10.1.0.5:80 -- ls-lb-add first lb -- lr-lb-add r lb",
];

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.replace('\u{1}', " ")).collect()
}

fn hand_over(way: Handover, daemons: &mut Daemons, north: &mut Group, south: &mut Group) {
    let (trio, is_killed) = match way {
        Handover::DaemonKilled | Handover::DaemonStopped => {
            let one = daemons.wait_for_one();
            daemons.end(one, matches!(way, Handover::DaemonKilled));
            let next = daemons.wait_for_one();
            assert_ne!(next, one);
            return daemons.start(one);
        }
        Handover::SouthStopped => (south, false),
        Handover::SouthKilled => (south, true),
        Handover::NorthKilled => (north, true),
    };
    let leader = trio.settle(&ALL);
    if is_killed {
        trio.kill(leader);
    } else {
        trio.stop(leader);
    }
    let others: Vec<usize> = ALL.into_iter().filter(|at| *at != leader).collect();
    trio.settle(&others);
    trio.start(leader, Program::Weir);
}

#[test]
fn three_daemons_take_turns_and_make_the_flows_of_one() {
    if reference("ovn-northd").is_none() {
        return;
    }
    let [Some(mut north), Some(mut south)] = [NORTHBOUND, SOUTHBOUND].map(Group::weir) else {
        return;
    };
    let remotes =
        |trio: &Group| ALL.map(|at| format!("unix:{}", trio.socket(at).display())).join(",");
    let databases = [remotes(&north), remotes(&south)];
    let [nb, sb] = databases.clone();
    let mut daemons = Daemons { scratch: Scratch::new(), databases, children: [const { None }; 3] };
    ALL.into_iter().for_each(|at| daemons.start(at));
    daemons.wait_for_one();
    for line in NETWORK {
        let line = words(&line.replace("\\ ", "\u{1}"));
        nbctl(&north.scratch, &nb, &line.iter().map(String::as_str).collect::<Vec<_>>());
    }
    nbctl(&north.scratch, &nb, &["--wait=sb", "sync"]);

    let (eyes, is_over) = (Scratch::new(), AtomicBool::new(false));
    for at in ALL {
        let link = eyes.path(&control(at));
        std::os::unix::fs::symlink(daemons.scratch.path(&control(at)), link).expect("a link");
    }
    let doubles = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&eyes, &is_over));
        let mut turns = || {
            for round in 0..HANDOVERS {
                hand_over(WAYS[round % WAYS.len()], &mut daemons, &mut north, &mut south);
                north.settle(&ALL);
                south.settle(&ALL);
                daemons.wait_for_one();
                let (switch, port) = (format!("turn{round}"), format!("port{round}"));
                let add = ["--wait=sb", "ls-add", &switch, "--", "lsp-add", &switch, &port];
                nbctl(&north.scratch, &nb, &add);
            }
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut turns));
        is_over.store(true, Ordering::Relaxed);
        let doubles = watcher.join().expect("it only looks");
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        doubles
    });
    assert!(doubles.is_empty(), "two daemons were active at once: {doubles:?}");

    let of_three = flows(&south.scratch, &sb);
    drop(daemons);
    north.stop_all();
    let of_one = flows_of_one(&north);
    assert!(of_three.len() > 500, "{} flows", of_three.len());
    let differing: Vec<_> = of_three.symmetric_difference(&of_one).take(10).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

/// What one daemon makes of the same northbound rows on a server of its own.
fn flows_of_one(north: &Group) -> BTreeSet<String> {
    let scratch = Scratch::new();
    let tool = reference("ovsdb-tool").expect("it comes with the server");
    let file = north.scratch.text(&north.file(0));
    let made = [
        scratch.run(&tool, &["cluster-to-standalone", "nb.db", &file]),
        scratch.run(&tool, &["create", "sb.db", SOUTHBOUND]),
    ];
    made.iter().for_each(|made| assert!(made.status.success(), "{}", err(made)));
    let socket: PathBuf = scratch.path("sock");
    let mut server = scratch.command(scratch.link("ovsdb-server"));
    server.args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "--unixctl"]);
    server.arg(scratch.text("server.ctl")).arg(format!("--remote=punix:{}", socket.display()));
    let _server = Running::start(server.args(["nb.db", "sb.db"]));
    eventually("the server listens", || listens(&socket));
    let remote = format!("unix:{}", socket.display());
    let databases = [remote.clone(), remote.clone()];
    let _daemon = Running::start(&mut northd(&scratch, &databases, &control(0)));
    nbctl(&scratch, &remote, &["--wait=sb", "sync"]);
    flows(&scratch, &remote)
}
