//! Chains of relays as processes: ours and packaged ones in every place, in front of a standalone server
//! or a cluster; servers in the middle are killed while clients write.

mod peer;
mod support;
mod group;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use group::{Group, Program};
use peer::Client;
use serde_json::{Value, json};
use support::{Scratch, err, eventually, out, reference};

use Program::{Packaged, Weir};

const ZERO: &str = "00000000-0000-0000-0000-000000000000";

/// A source that is a file, and relays behind it, each of the one before.
struct Chain {
    scratch: Scratch,
    programs: Vec<Program>,
    children: Vec<Option<Child>>,
    /// Where the source is, if it is not the first of these.
    source: Option<String>,
}

impl Chain {
    fn of(scratch: Scratch, programs: &[Program], source: Option<String>) -> Self {
        let children = programs.iter().map(|_| None).collect();
        let mut chain = Self { scratch, programs: programs.to_vec(), children, source };
        (0..programs.len()).for_each(|at| chain.start(at));
        chain
    }

    /// `None`, and said so, where the packaged server is not there.
    fn start_with(programs: &[Program]) -> Option<Self> {
        reference("ovsdb-server")?;
        let scratch = Scratch::new();
        peer::create(&scratch, "net.db");
        let chain = Self::of(scratch, programs, None);
        chain.settle();
        Some(chain)
    }

    fn socket(&self, at: usize) -> PathBuf {
        self.scratch.path(&format!("c{at}.sock"))
    }

    fn start(&mut self, at: usize) {
        let program = match self.programs[at] {
            Packaged => reference("ovsdb-server").expect("it was there"),
            Weir => self.scratch.link("ovsdb-server"),
        };
        let database = match (at, &self.source) {
            (0, None) => "net.db".to_owned(),
            (0, Some(source)) => source.clone(),
            _ => format!("relay:Net:unix:{}", self.socket(at - 1).display()),
        };
        let _ = std::fs::remove_file(self.socket(at));
        let mut command = self.scratch.command(program);
        command
            .args(["--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"])
            .arg(format!("--log-file={}", self.scratch.text(&format!("c{at}.log"))))
            .arg(format!("--unixctl={}", self.scratch.text(&format!("c{at}.ctl"))))
            .arg(format!("--remote=punix:{}", self.socket(at).display()))
            .arg(database)
            .stdout(Stdio::null());
        self.children[at] = Some(command.spawn().expect("the server starts"));
        eventually("the server listens", || Client::connect(&self.socket(at)).is_ok());
    }

    fn kill(&mut self, at: usize) {
        let mut child = self.children[at].take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("a child");
    }

    fn client(&self, at: usize) -> Client {
        Client::connect(&self.socket(at)).expect("the server listens")
    }

    /// Waits until the last one has rows of its source.
    fn settle(&self) {
        eventually("all relays have the database", || {
            (0..self.children.len()).all(|at| {
                let reply =
                    self.client(at).call(r#"{"id":1,"method":"get_schema","params":["Net"]}"#);
                reply.contains(r#""tables""#)
            })
        });
    }

    fn log(&self, at: usize) -> String {
        std::fs::read_to_string(self.scratch.path(&format!("c{at}.log"))).unwrap_or_default()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn since(last: &str) -> String {
    format!(
        r#"{{"id":1,"method":"monitor_cond_since","params":["Net","m",{{"Port":{{"columns":["name"]}}}},"{last}"]}}"#
    )
}

/// What a client that knows a state is answered: whether the server knew it, and the id of the state.
fn come_back(client: &mut Client, last: &str) -> (bool, String, usize) {
    let reply = value(&client.call(&since(last)));
    let result = &reply["result"];
    let rows = result[2]["Port"].as_object().map_or(0, |rows| rows.len());
    (result[0] == true, result[1].as_str().expect("an id").to_owned(), rows)
}

#[test]
fn ours_and_packaged_ones_stand_in_every_place() {
    for programs in [
        [Weir, Weir, Weir],
        [Packaged, Weir, Weir],
        [Packaged, Weir, Packaged],
        [Weir, Packaged, Weir],
        [Packaged, Packaged, Weir],
        [Weir, Weir, Packaged],
    ] {
        let Some(chain) = Chain::start_with(&programs) else { return };
        let mut all: Vec<Client> = (0..3).map(|at| chain.client(at)).collect();
        for (at, client) in all.iter_mut().enumerate() {
            let reply = client.transact(&peer::insert(&format!("p{at}"), "x"));
            assert!(reply.contains(r#""uuid""#), "{programs:?} {at}: {reply}");
            // Who has his reply sees his change.
            let ports = client.ports();
            assert!(ports.contains(&format!("p{at}")), "{programs:?} {at}: {ports:?}");
        }
        eventually("all have all rows", || {
            all.iter_mut().all(|client| client.ports() == ["p0", "p1", "p2"])
        });
        let twice = all[2].transact(&peer::insert("p1", "x"));
        assert!(twice.contains("constraint violation"), "{programs:?}: {twice}");
        let update = r#"{"op":"mutate","table":"Port","where":[["name","==","p1"]],"mutations":[["tags","insert",["set",["a","b"]]]]}"#;
        assert!(all[1].transact(update).contains(r#""count":1"#));
        let delete = r#"{"op":"delete","table":"Port","where":[["name","==","p0"]]}"#;
        assert!(all[2].transact(delete).contains(r#""count":1"#));
        let select =
            r#"{"op":"select","table":"Port","where":[],"columns":["_uuid","name","tags"]}"#;
        let mut rows = |at: usize| {
            let reply = value(&all[at].transact(select));
            let mut rows = reply["result"][0]["rows"].as_array().expect("rows").clone();
            rows.sort_by_key(|row| row["_uuid"].to_string());
            rows
        };
        eventually(&format!("{programs:?} have the same rows"), || {
            (1..3).all(|at| rows(at) == rows(0))
        });
        assert_eq!(rows(2).len(), 2, "{programs:?}");
    }
}

#[test]
fn clients_resume_through_a_chain_whose_middle_was_killed() {
    let Some(mut chain) = Chain::start_with(&[Weir, Weir, Weir, Weir]) else { return };
    let mut writer = chain.client(0);
    for n in 0..20 {
        writer.transact(&peer::insert(&format!("p{n}"), "x"));
    }
    eventually("the last one has all", || chain.client(3).ports().len() == 20);
    let (_, id, _) = come_back(&mut chain.client(3), ZERO);
    // The middle dies and comes back while somebody writes.
    chain.kill(2);
    for n in 20..30 {
        writer.transact(&peer::insert(&format!("p{n}"), "x"));
    }
    chain.start(2);
    eventually("the last one has what was written meanwhile", || {
        chain.client(3).ports().len() == 30
    });
    // Every server knows the state that the last one told before: who comes back gets ten rows. The one
    // in the middle has forgotten all that was before its end.
    for at in [3, 1, 0] {
        let (found, last, rows) = come_back(&mut chain.client(at), &id);
        assert_eq!((found, rows), (true, 10), "server {at}: {last}\n{}", chain.log(at));
    }
    let (found, _, rows) = come_back(&mut chain.client(2), &id);
    assert_eq!((found, rows), (false, 30));
    let log = chain.log(3);
    assert!(!log.contains("|ERR|") && !log.contains("|EMER|"), "{log}");
}

#[test]
fn what_a_relay_answered_is_at_the_source_however_relays_die() {
    let Some(mut chain) = Chain::start_with(&[Weir, Weir, Weir]) else { return };
    let (mut acknowledged, mut canceled) = (vec![], 0);
    for round in 0..6 {
        for n in 0..40 {
            let name = format!("r{round}n{n}");
            // Nobody reads the answers of the last ones.
            let mut client = chain.client(2);
            if n < 36 {
                let reply = client.transact(&peer::insert(&name, "x"));
                if value(&reply)["result"][0]["uuid"].is_array() {
                    acknowledged.push(name);
                } else {
                    canceled += 1;
                }
            } else {
                client.send(peer::transact(&peer::insert(&name, "x"))).expect("it is there");
            }
        }
        let at = 1 + round % 2;
        chain.kill(at);
        chain.start(at);
        chain.settle();
    }
    let ports = chain.client(0).ports();
    assert!(acknowledged.iter().all(|name| ports.contains(name)), "{canceled} were canceled");
    let mut once = ports.clone();
    once.dedup();
    assert_eq!(once, ports);
    eventually("the last relay has all rows", || chain.client(2).ports() == ports);
}

#[test]
fn a_cluster_is_relayed_whoever_leads() {
    for program in [Weir, Packaged] {
        let schema = group::SCHEMA;
        let group = match program {
            Weir => Group::weir(schema),
            Packaged => Group::packaged(schema),
        };
        let Some(mut group) = group else { return };
        let members: Vec<String> =
            (0..3).map(|at| format!("unix:{}", group.socket(at).display())).collect();
        let source = format!("relay:{}:{}", group.db, members.join(","));
        let chain = Chain::of(Scratch::new(), &[Weir], Some(source));
        let transact = |name: &str| {
            let op = json!({"op":"insert","table":"T","row":{"name":name}});
            json!({"id":1,"method":"transact","params":[group.db, op]}).to_string()
        };
        eventually("the relay has the database", || {
            chain.client(0).call(&transact("first")).contains(r#""uuid""#)
        });
        let names = || {
            let select = json!({"op":"select","table":"T","where":[],"columns":["name"]});
            let select = json!({"id":1,"method":"transact","params":[group.db, select]});
            value(&chain.client(0).call(&select.to_string()))["result"][0]["rows"].to_string()
        };
        let insert = transact("second");
        let leader = group.settle(&[0, 1, 2]);
        group.insert(leader, "third");
        eventually("the relay hears of it", || names().contains("third"));
        let rows = names();
        drop(insert);
        group.kill(leader);
        let rest: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        group.settle(&rest);
        group.insert(rest[0], "fourth");
        let select = json!({"op":"select","table":"T","where":[],"columns":["name"]});
        let select = json!({"id":1,"method":"transact","params":[group.db, select]}).to_string();
        eventually("the relay follows another member", || {
            chain.client(0).call(&select).contains("fourth")
        });
        assert!(rows.contains("first"), "{rows}");
        // As an operator sees it.
        let status = json!({"op":"select","table":"Database","where":[["name","==",group.db]]});
        let status = json!({"id":1,"method":"transact","params":["_Server", status]}).to_string();
        let row = value(&chain.client(0).call(&status))["result"][0]["rows"][0].clone();
        assert_eq!((&row["model"], &row["connected"]), (&json!("relay"), &json!(true)));
        assert!(row["index"].as_i64().is_some_and(|index| index > 3), "the source's index: {row}");
    }
}

/// Processes that end with the test.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run(command: &mut Command) -> String {
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{command:?}: {}", err(&done));
    out(&done)
}

/// The packaged programs of OVN behind three relays of each database: what `ovn-nbctl` asks for is on the
/// switch of a hypervisor in the end.
#[test]
fn ovn_works_behind_three_relays() {
    let (Some(northd), Some(nbctl), Some(sbctl), Some(tool), Some(vsctl)) = (
        reference("ovn-northd"),
        reference("ovn-nbctl"),
        reference("ovn-sbctl"),
        reference("ovsdb-tool"),
        reference("ovs-vsctl"),
    ) else {
        return;
    };
    let (Some(controller), Some(vswitchd)) =
        (reference("ovn-controller"), reference("ovs-vswitchd"))
    else {
        return;
    };
    let scratch = Scratch::new();
    for (db, schema) in [
        ("nb", "/usr/share/ovn/ovn-nb.ovsschema"),
        ("sb", "/usr/share/ovn/ovn-sb.ovsschema"),
        ("conf", "/usr/share/openvswitch/vswitch.ovsschema"),
    ] {
        run(scratch.command(&tool).args(["create", &format!("{db}.db"), schema]));
    }
    let weir = scratch.link("ovsdb-server");
    let mut children = Children(Vec::new());
    let names = [("nb", "OVN_Northbound"), ("sb", "OVN_Southbound")];
    for at in 0..4 {
        let mut command = scratch.command(&weir);
        command.args(["--no-chdir", "-vconsole:off", "-vsyslog:off"]);
        command.arg(format!("--remote=punix:{}", scratch.text(&format!("o{at}.sock"))));
        command.arg(format!("--unixctl={}", scratch.text(&format!("o{at}.ctl"))));
        if at == 0 {
            command.arg("conf.db");
        }
        for (file, name) in names {
            match at {
                0 => command.arg(format!("{file}.db")),
                _ => {
                    let before = scratch.text(&format!("o{}.sock", at - 1));
                    command.arg(format!("relay:{name}:unix:{before}"))
                }
            };
        }
        children.0.push(command.spawn().expect("the server starts"));
        let socket = scratch.path(&format!("o{at}.sock"));
        eventually("the server listens", || Client::connect(&socket).is_ok());
    }
    let last = format!("unix:{}", scratch.text("o3.sock"));
    let mut daemon = scratch.command(&northd);
    daemon.args(["-vconsole:off", "-vsyslog:off", "--unixctl", &scratch.text("northd.ctl")]);
    // It wants leaders, which no relay is.
    let source = format!("unix:{}", scratch.text("o0.sock"));
    daemon.arg(format!("--ovnnb-db={source}")).arg(format!("--ovnsb-db={source}"));
    children.0.push(daemon.spawn().expect("the daemon starts"));
    let nb = |args: &[&str]| {
        run(scratch
            .command(&nbctl)
            .args(["-t", "60", "--no-leader-only", "--db", &last])
            .args(args))
    };
    nb(&["ls-add", "ls0"]);
    for n in 0..10 {
        nb(&["lsp-add", "ls0", &format!("p{n}")]);
    }
    // It answers when northd has written the southbound database, and that has come back.
    nb(&["--wait=sb", "sync"]);
    let sb = |args: &[&str]| {
        run(scratch
            .command(&sbctl)
            .args(["-t", "60", "--no-leader-only", "--db", &last, "--bare"])
            .args(args))
    };
    let ports = sb(&["--columns=logical_port", "list", "Port_Binding"]);
    let mut ports: Vec<&str> = ports.split_whitespace().collect();
    ports.sort_unstable();
    let expected: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
    assert_eq!(ports, expected);

    // A hypervisor: its own database is at the source, OVN's behind the relays.
    let vs =
        |args: &[&str]| run(scratch.command(&vsctl).args(["-t", "60", "--db", &source]).args(args));
    vs(&["--no-wait", "init"]);
    for (key, value) in [
        ("system-id", "hv1"),
        ("ovn-remote", last.as_str()),
        ("ovn-encap-type", "geneve"),
        ("ovn-encap-ip", "127.0.0.1"),
    ] {
        vs(&["--no-wait", "set", "Open_vSwitch", ".", &format!("external-ids:{key}={value:?}")]);
    }
    let mut daemon = scratch.command(&vswitchd);
    daemon.args(["-vconsole:off", "-vsyslog:off", "--enable-dummy=override", "--disable-system"]);
    daemon.args(["--unixctl", &scratch.text("vswitchd.ctl")]).arg(&source);
    children.0.push(daemon.spawn().expect("the daemon starts"));
    let mut daemon = scratch.command(&controller);
    daemon.args(["-vconsole:off", "-vsyslog:off"]).arg(&source);
    daemon.env("OVN_RUNDIR", scratch.path("")).env("OVN_LOGDIR", scratch.path(""));
    children.0.push(daemon.spawn().expect("the daemon starts"));
    eventually("the hypervisor is known", || {
        sb(&["--columns=name", "list", "Chassis"]).trim() == "hv1"
    });
    vs(&["--may-exist", "add-br", "br-int"]);
    let interface = ["--", "set", "interface", "v0", "type=dummy", "external-ids:iface-id=p0"];
    vs(&[&["add-port", "br-int", "v0"], &interface[..]].concat());
    eventually("the port is bound", || {
        sb(&["--columns=up", "list", "Port_Binding", "p0"]).trim() == "true"
    });
    // It answers when all hypervisors have said that they are done.
    nb(&["--wait=hv", "sync"]);
    assert_eq!(nb(&["--bare", "--columns=up", "list", "Logical_Switch_Port", "p0"]).trim(), "true");
}
