//! Every scenario of `weir bench` in miniature against Weir itself, so that none of them rots:
//! whatever they check of answers and monitors holds, and each has the figures it promises.

use std::path::{Path, PathBuf};

use crate::support::{self, Scratch, WEIR};

/// The load tests' program: the example of this package, which cargo builds with its tests.
fn weir_bench() -> PathBuf {
    let program = Path::new(WEIR).with_file_name("examples").join("weir-bench");
    assert!(program.exists(), "cargo build -p weir-cli --examples makes {}", program.display());
    program
}

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";

fn installed(schema: &str) -> bool {
    let there = Path::new(schema).exists();
    if !there {
        eprintln!("skipped: {schema} is not installed");
    }
    there
}

/// Runs a scenario; returns the figures of Weir's one run by section.
fn bench(words: &[&str]) -> serde_json::Value {
    report(words)["servers"]["weir"][0].clone()
}

/// Runs a scenario; returns all that is told of it.
fn report(words: &[&str]) -> serde_json::Value {
    let scratch = Scratch::new();
    let (peer, json) = (format!("--peer=weir={WEIR}"), scratch.text("out.json"));
    let page = scratch.text("out.html");
    let dir = scratch.path("dir");
    std::fs::create_dir(&dir).expect("a folder for the servers");
    let mut args = words.to_vec();
    let dir = dir.display().to_string();
    args.extend([&peer, "--json", &json, "--report", &page, "--dir", &dir]);
    let output = scratch.run(weir_bench(), &args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {stderr}");
    // A line that fails is a figure, and why it did stands here alone.
    eprintln!("{stderr}");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains("</html>") && !page.contains("NaN"), "{words:?}: a broken page");
    let left = std::fs::read_dir(&dir).expect("the servers' folder").count();
    assert_eq!(left, 0, "{words:?}: files are left");
    let text = std::fs::read_to_string(json).expect("figures");
    let figures: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    figures["reports"][0].clone()
}

fn positive(figures: &serde_json::Value, section: &str, metric: &str) {
    let value = figures[section][metric].as_f64();
    assert!(value.is_some_and(|value| value > 0.0), "{section}: {metric}: {value:?}: {figures:#}");
}

#[test]
fn ports_come_and_go_in_every_manner() {
    if !installed(NORTHBOUND) {
        return;
    }
    let size = ["ports", "--rows=200", "--writers=8", "--monitors=4"];
    let closed = bench(&[&size[..], &["--cycles=2"]].concat());
    for section in ["port add", "LB add", "port delete", "LB delete"] {
        positive(&closed, section, "server CPU us/tx");
        positive(&closed, section, "p99.9 us");
        positive(&closed, section, "tx a round");
    }
    positive(&closed, "memory and disk", "peak RSS MB");
    let open = bench(&[&size[..], &["--rate=2000", "--no-floor"]].concat());
    positive(&open, "port add", "p99 us");
    let one_shot = bench(&[&size[..], &["--one-shot", "--no-floor"]].concat());
    positive(&one_shot, "LB delete", "tx/s, all drained");
}

#[test]
fn sets_and_tables_grow() {
    let set = bench(&["set", "--sizes=10,3000", "--ops=500", "--no-floor"]);
    positive(&set, "growth", "one element, 3000 / 10");
    let growth =
        bench(&["growth", "--rows=10,2000", "--elements=10,100", "--ops=500", "--no-floor"]);
    positive(&growth, "growth", "insert, 2000 / 10");
    positive(&growth, "growth", "delete, 2000 / 10");
    positive(&growth, "growth", "one element, 100 / 10");
}

#[test]
fn rows_are_named_in_three_ways() {
    for scenario in ["by-name", "by-column", "may-exist"] {
        let size = ["--rows=100,1000", "--seconds=0.05", "--no-floor", "--one-core"];
        let report = report(&[&[scenario], &size[..]].concat());
        assert!(report["title"].as_str().is_some_and(|title| title.ends_with(", on one core")));
        let figures = report["servers"]["weir"][0].clone();
        for kind in ["update", "select", "delete"] {
            positive(&figures, &format!("{kind}, 1000 rows"), "p50 us");
            positive(&figures, "growth", &format!("{kind}, 1000 / 100"));
        }
    }
}

#[test]
fn queries_are_measured_before_and_with_a_key() {
    let figures = bench(&["queries", "--rows=1000,2000", "--seconds=0.05", "--one-core"]);
    let kinds = [
        ("by column, one row", "hash"),
        ("by column", "hash"),
        ("by range", "ordered"),
        ("by element of a set", "inverted"),
        ("by pair of a map", "inverted"),
        ("by reference", "hash"),
        ("page", "ordered"),
        ("monitor by column", "hash"),
    ];
    for (kind, key) in kinds {
        let section = format!("{kind}, 2000 rows");
        positive(&figures, &section, "first: p50 us");
        positive(&figures, &section, "after: p50 us");
        positive(&figures, &section, "queries until there is a key");
        positive(&figures, &section, &format!("{key} key by index/list, bytes an entry"));
        positive(&figures, "growth", &format!("{kind}, 2000 / 1000"));
    }
    positive(&figures, "by name, 2000 rows", "after: p99 us");
    let one = bench(&["queries", "--rows=1000", "--seconds=0.05", "--no-floor", "--kinds=range"]);
    assert!(one["by range, 1000 rows"].is_object() && one["by name, 1000 rows"].is_null(), "{one}");
}

#[test]
fn big_transactions_reach_all_monitors() {
    if !installed(NORTHBOUND) {
        return;
    }
    let figures = bench(&["big", "--ops=60", "--writers=5", "--monitors=3,6"]);
    positive(&figures, "3 monitors", "delivered MB/s");
    positive(&figures, "6 monitors", "tx/s, all drained");
}

#[test]
fn monitors_with_conditions_see_only_their_rows() {
    let swap = ["--swappers=3", "--clauses=100", "--swap-seconds=0.2"];
    let size = ["conditions", "--ops=300", "--monitors=0,30", "--no-floor"];
    let figures = bench(&[&size[..], &swap].concat());
    positive(&figures, "growth", "30 / 0 monitors");
    let section = "3 clients swap one of 100 clauses a second";
    positive(&figures, section, "answers a second");
    positive(&figures, section, "server CPU %, an unknown method");
}

#[test]
fn others_are_heard_while_clients_misbehave() {
    let figures = bench(&["unfair", "--quick", "--seconds=0.05"]);
    for (line, metric) in [
        ("quiet", "commit p50 ms"),
        ("clauses", "monitor_cond_change, by index ms"),
        ("swap", "answer p50 ms"),
        ("audience", "delivered MB"),
        ("behind", "caught up after ms"),
        ("ranges", "the commit itself ms"),
        ("one-session", "delivered MB"),
        ("waits", "expired"),
        ("waits-elsewhere", "commit p99 ms"),
        ("drip", "100 KB, answers"),
        ("drip-mixed", "100 KB, answers"),
        ("drip-many", "100 KB, answers"),
        ("scans", "read longest wait ms"),
        ("reads", "long reads"),
        ("gone", "echo longest wait ms"),
        ("sum-waits", "sent MB"),
        ("sum-locks", "sent MB"),
        ("sum-monitors", "sent MB"),
        ("broken", "sessions ended"),
        ("files", "clients answered meanwhile"),
        ("memory", "RSS of a fresh start on the same file MB"),
    ] {
        positive(&figures, line, metric);
        assert!(figures[line]["failed"].is_null(), "{line}: {figures:#}");
    }
    let soak = bench(&["unfair", "--quick", "--minutes=0.03", "--lines=swap,waits,drip,broken"]);
    positive(&soak, "soak", "lines run");
    positive(&soak, "soak", "files when all have left");
    positive(&soak, "soak", "commit longest wait ms");
}

#[test]
fn a_follower_has_every_port() {
    if !installed(NORTHBOUND) {
        return;
    }
    let figures = bench(&["openstack", "--ports=50"]);
    positive(&figures, "growth", "time a port, last tenth / first");
}

#[test]
fn idle_clients_are_counted() {
    let figures = bench(&["connections", "--clients=100", "--seconds=0.1", "--ops=100"]);
    positive(&figures, "set-up", "connections/s");
    positive(&figures, "one writer, everybody watches", "delivered MB");
}

#[test]
fn strings_come_back_as_they_were() {
    let figures = bench(&["strings", "--sizes=1000,300000", "--volume=1000000"]);
    positive(&figures, "300000 bytes, 10 % quotes, 1 % control", "server CPU ns/byte");
}

#[test]
fn large_databases_are_dumped_and_compacted_beside_commits() {
    if !installed(SOUTHBOUND) {
        return;
    }
    let large = bench(&["large", "--megabytes=2"]);
    positive(&large, "start", "MB/s");
    positive(&large, "full dump", "commit p99 ms");
    positive(&large, "compaction", "commits due meanwhile");
    positive(&large, "conversion", "commits due meanwhile");
    let steps = bench(&["steps", "--megabytes=1", "--monitors=5", "--ops=1000"]);
    positive(&steps, "every row changes, equal monitors", "longest wait of an echo ms");
    positive(&steps, "conversion while every row changes", "longest wait of a commit ms");
    positive(&steps, "a backup takes its first rows", "longest wait of an echo ms");
    let memory = bench(&["snapshot-memory", "--megabytes=1,2"]);
    positive(&memory, "2 MB", "peak of compaction / RSS before");
    let herd = bench(&["herd", "--clients=6", "--megabytes=1"]);
    positive(&herd, "herd", "commit p99 ms");
}

#[test]
fn clients_that_come_back_are_told_what_has_changed() {
    if !installed(SOUTHBOUND) {
        return;
    }
    let figures = bench(&["resume", "--clients=4", "--megabytes=1", "--changes=10"]);
    for section in ["connections are cut", "restart", "kill -9", "compaction and restart"] {
        let figure = |name: &str| figures[section][name].as_f64();
        assert_eq!(figure("found: true %"), Some(100.0), "{section}: {figures:#}");
        let times = figure("database / text of the changes");
        assert!(times.is_some_and(|times| times > 0.0 && times <= 3.0), "{section}: {times:?}");
        positive(&figures, section, "s until all are current");
    }
    let some = bench(&["resume", "--lines=kill", "--clients=2", "--megabytes=1", "--tls"]);
    positive(&some, "kill -9", "bytes a client");
}

#[test]
fn a_cluster_is_loaded_and_loses_members() {
    if !installed(NORTHBOUND) {
        return;
    }
    let figures = bench(&["cluster", "--quick", "--rows=100"]);
    let sections = figures.as_object().expect("sections");
    let failed: Vec<_> = sections.iter().filter(|(_, of)| !of["failed"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let mut loads: Vec<_> =
        ["50 writers", "1 writer at the leader", "1 writer at a follower"].map(String::from).into();
    loads.extend(["10", "100", "1000"].map(|monitors| format!("{monitors} monitors")));
    if has_strace() {
        for delay in [1, 5] {
            let writers = ["50 writers", "1 writer at the leader"];
            loads.extend(writers.map(|w| format!("fdatasync {delay} ms slower, {w}")));
        }
    }
    for load in loads {
        for step in ["port add", "LB add", "port delete", "LB delete"] {
            let section = format!("{load}, {step}");
            for figure in ["tx/s, all drained", "server CPU us/tx", "driver CPU us/tx", "p99 us"] {
                positive(&figures, &section, figure);
            }
        }
        for member in 1..=3 {
            positive(&figures, &format!("{load}, memory and disk of member {member}"), "file MB");
        }
    }
    positive(&figures, "50 writers, memory and disk", "largest member / lone server");
    positive(&figures, "100 KB", "tx/s, all drained");
    members_that_go_lose_nothing(&figures);
    let report = report(&["cluster", "--quick", "--rows=20", "--members=5", "--lines=one-writer"]);
    positive(&report["servers"]["floor"][0], "floor of one writer", "fdatasync p50 us");
    positive(&report["servers"]["weir"][0], "1 writer at a follower, port add", "p50 us");
}

#[test]
fn relays_stand_before_a_cluster() {
    if !installed(SOUTHBOUND) {
        return;
    }
    let figures = bench(&["relay", "--quick", "--megabytes=1", "--clients=6"]);
    let sections = figures.as_object().expect("sections");
    let failed: Vec<_> = sections.iter().filter(|(_, of)| !of["failed"].is_null()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    positive(&figures, "memory", "peak at first sync / standalone");
    positive(&figures, "depth", "3 relays deep / 1 relay deep");
    positive(&figures, "crowd", "all clients / a tenth of them");
    for relays in [0, 3, 10] {
        positive(&figures, &format!("{relays} relays, members"), "tx/s, all drained");
        positive(&figures, &format!("{relays} relays, all"), "RSS MB, all together");
        let compacting = format!("{relays} relays, clients' servers while all compact");
        positive(&figures, &compacting, "echo longest wait ms");
        for figure in ["CPU s", "RSS MB", "RSS MB after compaction"] {
            positive(&figures, &format!("{relays} relays, member 3"), figure);
        }
    }
    positive(&figures, "10 relays, relays", "CPU s, all together");
    positive(&figures, "10 relays, relay 10", "CPU s");
}

/// Whether the disks of members can be slowed here.
fn has_strace() -> bool {
    std::process::Command::new("strace").arg("--version").output().is_ok()
}

fn members_that_go_lose_nothing(figures: &serde_json::Value) {
    for section in [
        "leader killed",
        "follower killed",
        "member returns by a snapshot",
        "compaction of each member",
        "rolling restart",
    ] {
        for figure in ["writes a second", "longest stall of a writer ms", "server CPU us/tx"] {
            positive(figures, section, figure);
        }
        for figure in [
            "acknowledged writes that a member lacks",
            "writes answered with an error that a member has",
        ] {
            assert_eq!(figures[section][figure].as_f64(), Some(0.0), "{section}: {figure}");
        }
        for member in 1..=3 {
            let section = format!("{section}, member {member}");
            positive(figures, &section, "peak RSS MB");
            positive(figures, &section, "file MB");
        }
    }
    positive(figures, "leader killed", "writes again, election timers, worst");
    positive(figures, "leader killed", "elections");
    positive(figures, "member returns by a snapshot", "has everything after s");
}

#[test]
fn rates_over_time_are_drawn_as_text() {
    if !installed(NORTHBOUND) {
        return;
    }
    let scratch = Scratch::new();
    let peer = format!("--peer=weir={WEIR}");
    let lines = "--lines=follower-killed";
    let output = scratch.run(weir_bench(), &["cluster", "--quick", "--rows=20", lines, &peer]);
    let text = support::out(&output);
    let drawn = text.split_once("follower killed, writes over time: ");
    let (_, drawn) = drawn.unwrap_or_else(|| panic!("{text}\n{}", support::err(&output)));
    let bars = drawn.lines().find_map(|line| line.strip_prefix("  weir  "));
    assert!(bars.is_some_and(|bars| bars.contains('█')), "{drawn}");
}

/// A line that takes too long has its servers killed, and the next one has servers of its own.
#[test]
fn a_line_beyond_its_limit_fails_and_leaves_nothing() {
    if !installed(NORTHBOUND) {
        return;
    }
    let words = ["cluster", "--rows=1000000", "--limit=0.5", "--lines=ports,rolling"];
    let figures = bench(&words);
    for line in ["ports", "rolling"] {
        assert_eq!(figures[line]["failed"].as_f64(), Some(1.0), "{figures:#}");
    }
}

#[test]
fn a_table_is_resumed_from_its_results() {
    let scratch = Scratch::new();
    let (peer, results) = (format!("--peer=weir={WEIR}"), scratch.text("results"));
    let all = |only: &str| {
        let only = format!("--only={only}");
        scratch.run(weir_bench(), &["all", "--quick", &peer, "--results", &results, &only])
    };
    let first = all("openstack");
    if !installed(NORTHBOUND) {
        assert!(!first.status.success());
        return;
    }
    assert!(first.status.success());
    let second = all("openstack");
    assert!(String::from_utf8_lossy(&second.stderr).contains("openstack.json"));
    assert_eq!(first.stdout, second.stdout);
    let broken = "--peer=broken=/bin/false";
    let words = ["all", "--quick", broken, "--only=openstack,strings"];
    let failed = scratch.run(weir_bench(), &words);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(text.contains("== failed: openstack, strings"), "{text}");
    let put_together = scratch.run(weir_bench(), &["report", "results/openstack.json"]);
    assert_eq!(first.stdout, put_together.stdout);
    assert!(!all("nonsense").status.success());
}

#[test]
fn a_server_that_runs_already_is_measured_and_its_rows_are_left_alone() {
    let scratch = Scratch::new();
    let schema = scratch.run(weir_bench(), &["schema", "set"]);
    scratch.write("set.ovsschema", &String::from_utf8_lossy(&schema.stdout));
    let made = scratch.run(WEIR, &["tool", "create", "set.db", "set.ovsschema"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let socket = scratch.text("sock");
    let mut server = scratch
        .command(WEIR)
        .args(["server", "--no-chdir", "-vconsole:off", "set.db", "--unixctl=none"])
        .arg(format!("--remote=punix:{socket}"))
        .spawn()
        .expect("a server");
    let begun = std::time::Instant::now();
    while !Path::new(&socket).exists() && begun.elapsed() < support::PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let target = format!("--server=unix:{socket}");
    let bench = |more: &[&str]| {
        let words = ["set", &target, "--sizes=10,20", "--ops=100", "--no-floor"];
        scratch.run(weir_bench(), &[&words[..], more].concat())
    };
    let first = bench(&[]);
    let (second, cleared) = (bench(&[]), bench(&["--clear"]));
    server.kill().expect("the server is there");
    server.wait().expect("the server ends");
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let text = String::from_utf8_lossy(&first.stdout);
    assert!(text.contains("tx/s") && !text.contains("server CPU"), "no process, no CPU: {text}");
    assert!(!second.status.success() && cleared.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("--clear"));
}

#[test]
fn every_connection_may_speak_tls() {
    if !installed(NORTHBOUND) || !installed(SOUTHBOUND) {
        return;
    }
    let reference = support::reference("ovsdb-server");
    let peer = reference.map(|path| format!("--peer=ref={}", path.display()));
    let mut size = vec!["ports", "--tls", "--rows=200", "--writers=8", "--monitors=4"];
    size.extend(peer.as_deref());
    let report = report(&size);
    assert_eq!(report["scenario"], "ports, short, over TLS");
    assert_eq!(report["floors"], serde_json::json!(["floor (no TLS)", "paced floor (no TLS)"]));
    for server in peer.iter().map(|_| "ref").chain(["weir"]) {
        positive(&report["servers"][server][0], "LB delete", "server CPU us/tx");
    }
    let one_shot = bench(&[&size[..5], &["--one-shot", "--no-floor"]].concat());
    positive(&one_shot, "LB delete", "tx/s, all drained");
    // Messages of more than a record, and hundreds of them in one piece.
    let big = bench(&["big", "--tls", "--ops=60", "--writers=5", "--monitors=3", "--no-floor"]);
    positive(&big, "3 monitors", "delivered MB/s");
    let herd = bench(&["herd", "--tls", "--clients=6", "--megabytes=1"]);
    positive(&herd, "herd", "commit p99 ms");
}

#[test]
fn a_server_that_runs_already_is_reached_over_tls_with_the_users_own_certificate() {
    use weir_testkit::pki::Pki;
    let Some(pki) = Pki::usual("bench") else { return };
    let scratch = Scratch::new();
    let schema = scratch.run(weir_bench(), &["schema", "set"]);
    scratch.write("set.ovsschema", &String::from_utf8_lossy(&schema.stdout));
    let made = scratch.run(WEIR, &["tool", "create", "set.db", "set.ovsschema"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let log = scratch.text("server.log");
    let mut server = scratch
        .command(WEIR)
        .args(["server", "--no-chdir", "-vconsole:off", "set.db", "--unixctl=none"])
        .args(["--remote=pssl:0:127.0.0.1", &format!("--log-file={log}")])
        .args(pki.arguments("server"))
        .spawn()
        .expect("a server");
    let mut port = String::new();
    support::eventually("the server listens", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let port_of = |line: &str| Some(line.split_once("listening on port ")?.1.to_owned());
        port = text.lines().find_map(port_of).unwrap_or_default();
        text.ends_with('\n') && !port.is_empty()
    });
    let target = format!("--server=ssl:127.0.0.1:{port}");
    let bench = |more: &[String]| {
        let words = ["set", &target, "--sizes=10,20", "--ops=100", "--no-floor"];
        let more = more.iter().map(String::as_str);
        scratch.run(weir_bench(), &words.into_iter().chain(more).collect::<Vec<_>>())
    };
    let (good, bare) = (bench(&pki.arguments("client")), bench(&[]));
    server.kill().expect("the server is there");
    server.wait().expect("the server ends");
    assert!(good.status.success(), "{}", support::err(&good));
    assert!(support::out(&good).contains("over TLS"), "{}", support::out(&good));
    assert!(!bare.status.success());
    assert!(support::err(&bare).contains("needs -p, -c and -C"), "{}", support::err(&bare));
    let plain = scratch.run(weir_bench(), &["set", "--tls", "--server=unix:sock"]);
    assert!(support::err(&plain).contains("not ssl:HOST:PORT"), "{}", support::err(&plain));
}

/// TERM in the middle of a run leaves neither a server nor a file.
#[test]
fn an_interrupted_run_stops_its_servers() {
    interrupted(&["growth"], 1);
    if installed(NORTHBOUND) {
        interrupted(&["cluster", "--lines=ports", "--rows=1000000"], 3);
    }
}

/// Interrupts a run that has started so many servers.
fn interrupted(words: &[&str], servers: usize) {
    use std::process::{Command, Stdio};
    let scratch = Scratch::new();
    let dir = scratch.path("dir");
    std::fs::create_dir(&dir).expect("a folder for the servers");
    let mut run = Command::new(weir_bench())
        .args(words)
        .args(["--no-floor", &format!("--peer=weir={WEIR}")])
        .arg(format!("--dir={}", dir.display()))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(scratch.path("said")).expect("a file"))
        .spawn()
        .expect("weir-bench");
    let entries = || std::fs::read_dir(&dir).expect("the folder").flatten();
    let sockets =
        || entries().map(|entry| entry.path().join("sock")).filter(|path| path.exists()).count();
    support::eventually("the servers listen", || sockets() == servers);
    let children = children(run.id());
    assert_eq!(children.len(), servers, "{children:?}");
    let stopped = Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(stopped.expect("kill").success());
    let status = run.wait().expect("its end");
    let said = std::fs::read_to_string(scratch.path("said")).unwrap_or_default();
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    assert_eq!(signal, Some(15), "{status}: {said}");
    assert_eq!(entries().count(), 0, "files are left");
    // Whoever adopts them reaps them.
    let is_gone = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    };
    // A process that has been killed takes a moment to end.
    support::eventually("no server is left", || children.iter().all(is_gone));
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        parent.is_some_and(|parent| parent == pid.to_string())
    };
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

/// The programs of both sides, each result equal to the other's.
#[test]
fn the_programs_are_measured_and_agree() {
    if !installed(SOUTHBOUND) {
        return;
    }
    let mut words = vec!["tools", "--megabytes=1", "--one-shots=3"];
    let reference = support::reference("ovsdb-server");
    let peer = reference.map(|path| format!("--peer=ref={}", path.display()));
    words.extend(peer.as_deref());
    let report = report(&words);
    for (_, runs) in report["servers"].as_object().expect("servers") {
        for section in ["dump", "backup", "restore", "compact", "convert", "query"] {
            positive(&runs[0], section, "s");
            positive(&runs[0], section, "CPU s");
            positive(&runs[0], section, "peak MB");
        }
        positive(&runs[0], "list-dbs", "p50 ms");
        positive(&runs[0], "compare-versions", "CPU ms");
    }
}

/// What people install has no load tests in it: `weir bench` becomes the program beside it.
#[test]
fn weir_bench_is_the_program_beside_weir() {
    use std::os::unix::fs::symlink;
    let scratch = Scratch::new();
    let folder = scratch.path("beside");
    std::fs::create_dir(&folder).expect("a folder");
    let (weir, link) = (folder.join("weir"), scratch.path("weir"));
    std::fs::copy(WEIR, &weir).expect("a copy of weir");
    symlink(&weir, &link).expect("a link to it");
    let alone = scratch.run(&link, &["bench", "--help"]);
    assert_eq!(alone.status.code(), Some(1));
    let expected = format!("weir: bench: running {}", folder.join("weir-bench").display());
    assert!(support::err(&alone).starts_with(&expected), "{}", support::err(&alone));

    symlink(weir_bench(), folder.join("weir-bench")).expect("a link to weir-bench");
    let help = scratch.run(&link, &["bench", "--help"]);
    assert!(support::out(&help).contains("make-db"), "{}", support::err(&help));
    let wrong = scratch.run(&link, &["bench", "nonsense"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(support::err(&wrong).starts_with("weir-bench: unknown command 'nonsense'"));
}

/// Neither the load driver nor its certificate maker is linked into what people install.
#[test]
fn weir_itself_has_no_load_tests() {
    let program = std::fs::read(WEIR).expect("the program");
    let has = |text: &str| program.windows(text.len()).any(|at| at == text.as_bytes());
    assert!(has("weir up   "), "the texts of weir are found");
    assert!(!has("usage: weir bench SCENARIO") && !has("weir bench CA"));
}
