//! Programs of Open vSwitch and OVN, whose library is that of C, coming back to Weir: what they know
//! is what the server has after whatever happened meanwhile, and Weir sends only what has changed.
//!
//! Most of them watch all columns, also those that are not kept in files, and then are told
//! everything after a restart. With a schema in which all columns are kept they are resumed always.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::returns::{Meanwhile, NOTHING, World};
use crate::support::{PATIENCE, Running, Scratch, out, reference};
use serde_json::{Value, json};
use weir_testkit::process::{self, Program, Server};

const NORTHBOUND: &str = "/usr/share/ovn/ovn-nb.ovsschema";
const SOUTHBOUND: &str = "/usr/share/ovn/ovn-sb.ovsschema";
const VSWITCH: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Each of them, one twice: a difference that is told twice shows. After a refusal a client is
/// resumed again. (They wait longer from time to time, up to 8 s.)
const WHILES: &[Meanwhile] = {
    use Meanwhile::{Compaction, Cut, Kill, Restart, Stock};
    &[Cut, Restart, Compaction, Kill, Kill, Stock, Restart]
};

/// The schema, or its like in which every column is kept in files; none where it is not installed.
fn schema(scratch: &Scratch, path: &str, kept: bool) -> Option<PathBuf> {
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} is not installed");
        return None;
    };
    let mut schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    for (_, table) in schema["tables"].as_object_mut().into_iter().flatten() {
        for (_, column) in table["columns"].as_object_mut().into_iter().flatten().filter(|_| kept) {
            column.as_object_mut().expect("a column").remove("ephemeral");
        }
    }
    let name = format!("{}.ovsschema", schema["name"].as_str().expect("its name"));
    Some(scratch.write(&name, &schema.to_string()))
}

/// A program of OVN here: its folders and its log.
fn daemon(scratch: &Scratch, program: &Path, name: &str) -> Command {
    let mut command = scratch.command(program);
    for variable in ["OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR"] {
        command.env(variable, scratch.path("."));
    }
    command.arg("-vconsole:off");
    command.arg(format!("--log-file={}", scratch.text(&format!("{name}.log"))));
    command
}

/// The option of the socket on which such a program is asked.
fn control(scratch: &Scratch, name: &str) -> String {
    format!("--unixctl={}", scratch.text(&format!("{name}.ctl")))
}

/// The answer of a daemon to its administrator.
fn ask(scratch: &Scratch, name: &str, words: &[&str]) -> Option<String> {
    let appctl = reference("ovs-appctl")?;
    let target = scratch.text(&format!("{name}.ctl"));
    let output = scratch.run(appctl, &[&["-T", "30", "-t", &target], words].concat());
    output.status.success().then(|| out(&output))
}

/// No update was one that did not fit what the program knew.
fn assert_all_fitted(scratch: &Scratch, name: &str) {
    let log = std::fs::read_to_string(scratch.path(&format!("{name}.log"))).expect("its log");
    let wrong = log.lines().find(|line| {
        ["existing row", "missing row", "error parsing", "syntax error"]
            .iter()
            .any(|text| line.contains(text))
    });
    assert_eq!(wrong, None, "{name}: an update did not fit");
    assert!(log.contains("opened log file"), "{name}: it logs nothing: {log}");
}

/// Waits until the program knows what the server has.
fn assert_alike(
    what: &str,
    world: &World,
    server: &dyn Fn(&World) -> String,
    client: &dyn Fn() -> Option<String>,
) {
    let (expected, mut seen) = (server(world), None);
    let start = std::time::Instant::now();
    while seen.as_ref() != Some(&expected) {
        assert!(start.elapsed() < PATIENCE, "{what}: {expected} is {seen:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
        seen = client();
    }
}

/// Away again and again; what it knows is compared each time.
fn comes_back(
    world: &mut World,
    change: &mut dyn FnMut(&World, u32),
    server: &dyn Fn(&World) -> String,
    client: &dyn Fn() -> Option<String>,
) {
    for first in world.arrivals("the first connection") {
        assert_eq!((first.found, first.asked.as_str()), (false, NOTHING));
    }
    world.change(change);
    assert_alike("the first connection", world, server, client);
    for (n, &what) in WHILES.iter().enumerate() {
        for resumed in world.away(what, change) {
            assert_ne!(resumed.asked, NOTHING, "{what:?}: it names no id");
        }
        assert_alike(&format!("{n}: {what:?}"), world, server, client);
        if n % 3 == 2 {
            world.change(change);
            assert_alike(&format!("{n}: {what:?}, an update"), world, server, client);
        }
    }
}

/// The rows that a select gives, or a program prints, in an order of their own.
fn sorted(rows: Vec<String>) -> String {
    let mut rows = rows;
    rows.sort();
    rows.iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{row}");
        text
    })
}

fn transact(world: &World, db: &str, operations: &[Value]) -> Value {
    let result = world.session().transact(db, operations).expect("a transaction");
    let failed = result.as_array().expect("results").iter().find(|one| one.get("error").is_some());
    assert_eq!(failed, None, "{operations:?}");
    result
}

fn names(world: &World, db: &str, table: &str) -> String {
    let select = json!({"op": "select", "table": table, "where": [], "columns": ["name"]});
    let result = transact(world, db, &[select]);
    let rows = result[0]["rows"].as_array().expect("rows");
    sorted(rows.iter().map(|row| row["name"].as_str().unwrap_or_default().to_owned()).collect())
}

/// A switch comes with two ports, another one loses them, an address set changes in a way that
/// cannot be applied twice, an old switch goes.
fn change_network(world: &World, n: u32) {
    let is = |n: u32| json!([["name", "==", format!("sw{n}")]]);
    let mut operations = Vec::new();
    for port in 0..2 {
        operations.push(json!({"op": "insert", "table": "Logical_Switch_Port",
            "uuid-name": format!("p{port}"), "row": {"name": format!("sw{n}p{port}"),
                "addresses": format!("0a:00:00:00:{port:02x}:{:02x} 10.0.0.{}", n % 256, n % 256)}}));
    }
    operations.extend([
        json!({"op": "insert", "table": "Logical_Switch", "row": {"name": format!("sw{n}"),
            "ports": ["set", [["named-uuid", "p0"], ["named-uuid", "p1"]]],
            "external_ids": ["map", [["k", format!("{n}")]]]}}),
        json!({"op": "update", "table": "Logical_Switch", "where": is(n / 2),
            "row": {"ports": ["set", []], "external_ids": ["map", [["l", format!("{n}")]]]}}),
        json!({"op": "delete", "table": "Logical_Switch", "where": is(n.saturating_sub(7))}),
        json!({"op": "mutate", "table": "Address_Set", "where": [["name", "==", "all"]],
            "mutations": [["addresses", "insert", format!("10.0.0.{}", n % 256)],
                ["addresses", "delete", format!("10.0.0.{}", n.saturating_sub(5) % 256)]]}),
    ]);
    if n == 1 {
        operations.push(json!({"op": "insert", "table": "Address_Set", "row": {"name": "all"}}));
    }
    transact(world, "OVN_Northbound", &operations);
}

/// `ovn-nbctl` as a daemon keeps a replica, and prints it.
fn nbctl(kept: bool) {
    let (Some(program), Some(stock)) = (reference("ovn-nbctl"), process::reference()) else {
        return;
    };
    let scratch = Scratch::new();
    let Some(schema) = schema(&scratch, NORTHBOUND, kept) else { return };
    let mut world = World::new(&scratch, stock, &[schema]);
    let tables = ["Logical_Switch", "Logical_Switch_Port", "Address_Set"];
    let list = |ask: &dyn Fn(&str) -> Option<String>| {
        let of_table = |&table: &&str| -> Option<String> {
            let listed: Value = serde_json::from_str(&ask(table)?).ok()?;
            let rows = listed["data"].as_array()?;
            Some(sorted(rows.iter().map(Value::to_string).collect()))
        };
        tables.iter().map(of_table).collect::<Option<Vec<_>>>().map(|all| all.concat())
    };
    let mut command = daemon(&scratch, &program, "nbctl");
    command.arg(control(&scratch, "nbctl")).arg(format!("--db={}", world.proxy.remote()));
    // In the foreground it would end with its first command.
    let pidfile = scratch.text("nbctl.pid");
    command.args(["--detach", "--no-leader-only", &format!("--pidfile={pidfile}")]);
    let _daemon = Detached::start(command, &pidfile);
    let server = |world: &World| {
        let db = format!("--db=unix:{}", world.server().socket().display());
        list(&|table| {
            let words = ["--timeout=60", "--format=json", db.as_str(), "list", table];
            let output = scratch.run(&program, &words);
            output.status.success().then(|| out(&output))
        })
        .expect("a list of the server's rows")
    };
    let client = || list(&|table| ask(&scratch, "nbctl", &["run", "--format=json", "list", table]));
    comes_back(&mut world, &mut change_network, &server, &client);
    assert_all_fitted(&scratch, "nbctl");
}

#[test]
fn a_daemon_of_ovn_nbctl_comes_back() {
    nbctl(false);
}

#[test]
fn a_daemon_of_ovn_nbctl_is_resumed_where_all_columns_are_kept() {
    nbctl(true);
}

/// `ovn-northd` with both databases: each switch has a datapath, each port a binding, for what it
/// knows of both is right.
fn northd(kept: bool) {
    let (Some(program), Some(stock)) = (reference("ovn-northd"), process::reference()) else {
        return;
    };
    let scratch = Scratch::new();
    let Some(north) = schema(&scratch, NORTHBOUND, kept) else { return };
    let Some(south) = schema(&scratch, SOUTHBOUND, kept) else { return };
    let mut world = World::new(&scratch, stock, &[north, south]);
    let mut command = daemon(&scratch, &program, "northd");
    for db in ["nb", "sb"] {
        command.arg(format!("--ovn{db}-db={}", world.proxy.remote()));
    }
    let _daemon = Running::start(&mut command);
    // What it knows shows in what it does, in the server that it is connected to.
    let socket = RefCell::new(PathBuf::new());
    let server = |world: &World| {
        *socket.borrow_mut() = world.server().socket();
        names(world, "OVN_Northbound", "Logical_Switch")
            + &names(world, "OVN_Northbound", "Logical_Switch_Port")
    };
    let client = || {
        let mut session = weir_testkit::client::Client::connect(&socket.borrow()).ok()?;
        let of = |table: &str| json!({"op": "select", "table": table, "where": []});
        let result = session
            .transact("OVN_Southbound", &[of("Datapath_Binding"), of("Port_Binding")])
            .ok()?;
        let text = |n: usize, name: &dyn Fn(&Value) -> String| {
            Some(sorted(result[n]["rows"].as_array()?.iter().map(name).collect()))
        };
        let switch = |row: &Value| {
            let ids = row["external_ids"][1].as_array();
            let name = ids.into_iter().flatten().find(|pair| pair[0] == "name");
            name.and_then(|pair| pair[1].as_str()).unwrap_or_default().to_owned()
        };
        let port = |row: &Value| row["logical_port"].as_str().unwrap_or_default().to_owned();
        Some(text(0, &switch)? + &text(1, &port)?)
    };
    comes_back(&mut world, &mut change_network, &server, &client);
    assert_all_fitted(&scratch, "northd");
}

#[test]
fn ovn_northd_comes_back() {
    northd(false);
}

#[test]
fn ovn_northd_is_resumed_where_all_columns_are_kept() {
    northd(true);
}

/// A bridge comes, another one is told something, an old one goes.
fn change_switch(world: &World, n: u32) {
    let (name, gone) = (format!("br{n}"), format!("br{}", n.saturating_sub(4)));
    let select = json!({"op": "select", "table": "Bridge", "where": [["name", "==", gone]],
        "columns": ["_uuid"]});
    let found = transact(world, "Open_vSwitch", &[select]);
    let mut operations = vec![
        json!({"op": "insert", "table": "Interface", "uuid-name": "i",
            "row": {"name": name, "type": "internal"}}),
        json!({"op": "insert", "table": "Port", "uuid-name": "p",
            "row": {"name": name, "interfaces": ["named-uuid", "i"]}}),
        json!({"op": "insert", "table": "Bridge", "uuid-name": "b",
            "row": {"name": name, "ports": ["named-uuid", "p"], "datapath_type": "dummy"}}),
        json!({"op": "update", "table": "Bridge", "where": [["name", "==", format!("br{}", n - 1)]],
            "row": {"external_ids": ["map", [["k", name]]]}}),
    ];
    if n == 1 {
        operations.push(json!({"op": "insert", "table": "Open_vSwitch", "row": {}}));
    }
    let mut mutations = vec![json!(["bridges", "insert", ["named-uuid", "b"]])];
    if let Some(gone) = found[0]["rows"][0].get("_uuid") {
        mutations.push(json!(["bridges", "delete", gone]));
    }
    operations.push(json!({"op": "mutate", "table": "Open_vSwitch", "where": [],
        "mutations": mutations}));
    transact(world, "Open_vSwitch", &operations);
}

/// `ovs-vswitchd` has the bridges that are in the database.
fn vswitchd(kept: bool) {
    let (Some(program), Some(stock)) = (reference("ovs-vswitchd"), process::reference()) else {
        return;
    };
    let scratch = Scratch::new();
    let Some(schema) = schema(&scratch, VSWITCH, kept) else { return };
    let mut world = World::new(&scratch, stock, &[schema]);
    let mut command = daemon(&scratch, &program, "vswitchd");
    command.arg(control(&scratch, "vswitchd")).arg(world.proxy.remote());
    command.args(["--enable-dummy=override", "--disable-system"]);
    let _daemon = Running::start(&mut command);
    let server = |world: &World| names(world, "Open_vSwitch", "Bridge");
    let client = || {
        let bridges = ask(&scratch, "vswitchd", &["ofproto/list"])?;
        Some(sorted(bridges.lines().map(str::to_owned).collect()))
    };
    comes_back(&mut world, &mut change_switch, &server, &client);
    assert_all_fitted(&scratch, "vswitchd");
}

#[test]
fn ovs_vswitchd_comes_back() {
    vswitchd(false);
}

#[test]
fn ovs_vswitchd_is_resumed_where_all_columns_are_kept() {
    vswitchd(true);
}

/// `ovn-controller`, with the switch that it makes flows for: the flows are those of the rows that
/// the server has. It watches only columns that are kept in files.
#[test]
fn ovn_controller_is_resumed() {
    let programs = ["ovn-controller", "ovs-vswitchd", "ovs-ofctl"].map(installed);
    let [Some(controller), Some(vswitchd), Some(ofctl)] = programs else { return };
    let Some(stock) = process::reference() else { return };
    let scratch = Scratch::new();
    let Some(south) = schema(&scratch, SOUTHBOUND, false) else { return };
    let Some(conf) = schema(&scratch, VSWITCH, false) else { return };
    let mut world = World::new(&scratch, stock, &[south]);
    // It may wait for ever for a port that comes in the moment in which it registers.
    world.change(&mut change_flows);
    let local = chassis(&scratch, &world, &conf);
    let remote = format!("unix:{}", local.socket().display());
    let mut command = daemon(&scratch, &vswitchd, "vswitchd");
    command.args([&remote, "--enable-dummy=override", "--disable-system"]);
    let _switch = Running::start(&mut command);
    let _daemon = Running::start(daemon(&scratch, &controller, "controller").arg(&remote));
    let flows = RefCell::new(BTreeSet::new());
    let server = |world: &World| {
        let select = json!({"op": "select", "table": "Logical_Flow", "where": [],
            "columns": ["_uuid"]});
        let result = transact(world, "OVN_Southbound", &[select]);
        let rows = result[0]["rows"].as_array().expect("rows");
        let rows: Vec<_> = rows.iter().map(|row| cookie(&row["_uuid"])).collect();
        flows.borrow_mut().extend(rows.iter().cloned());
        sorted(rows)
    };
    let client = || {
        let bridge = format!("unix:{}", scratch.text("br-int.mgmt"));
        let output = scratch.run(&ofctl, &["-O", "OpenFlow15", "dump-flows", &bridge]);
        let cookies: BTreeSet<String> = out(&output)
            .lines()
            .filter_map(|line| {
                let (number, _) = line.split_once("cookie=0x")?.1.split_once(',')?;
                Some(format!("{number:0>8}"))
            })
            .collect();
        // Other flows have the numbers of other rows.
        Some(sorted(cookies.intersection(&flows.borrow()).cloned().collect()))
    };
    comes_back(&mut world, &mut change_flows, &server, &client);
    assert_all_fitted(&scratch, "controller");
    let watched = world.proxy.resumed("OVN_Southbound").pop().expect("it has come back");
    assert!(watched.found, "after a restart: {watched:#?}");
}

/// A program of a package, or in the path.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.exists());
    found.or_else(|| reference(name))
}

/// The number that flows of this row have.
fn cookie(uuid: &Value) -> String {
    uuid[1].as_str().expect("a uuid").chars().take(8).collect()
}

/// The database of a switch with one port of the network, which the proxy leads to.
fn chassis(scratch: &Scratch, world: &World, schema: &Path) -> Server {
    let (file, schema) = (scratch.text("conf.db"), schema.display().to_string());
    let made = scratch.run(scratch.link("ovsdb-tool"), &["create", &file, &schema]);
    assert!(made.status.success(), "{made:?}");
    let weir = Program { label: "weir", path: scratch.link("ovsdb-server"), options: &[] };
    let local = Server::start(&weir, &[file.into()]).expect("Weir starts");
    let ids = json!([
        "map",
        [
            ["ovn-remote", world.proxy.remote()],
            ["system-id", "hv1"],
            ["ovn-encap-type", "geneve"],
            ["ovn-encap-ip", "127.0.0.1"]
        ]
    ]);
    let operations = [
        json!({"op": "insert", "table": "Interface", "uuid-name": "i", "row": {"name": "vif1",
            "type": "internal", "external_ids": ["map", [["iface-id", "p1"]]]}}),
        json!({"op": "insert", "table": "Port", "uuid-name": "p",
            "row": {"name": "vif1", "interfaces": ["named-uuid", "i"]}}),
        json!({"op": "insert", "table": "Interface", "uuid-name": "j",
            "row": {"name": "br-int", "type": "internal"}}),
        json!({"op": "insert", "table": "Port", "uuid-name": "q",
            "row": {"name": "br-int", "interfaces": ["named-uuid", "j"]}}),
        json!({"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "br-int",
            "fail_mode": "secure", "datapath_type": "dummy",
            "ports": ["set", [["named-uuid", "p"], ["named-uuid", "q"]]]}}),
        json!({"op": "insert", "table": "Open_vSwitch",
            "row": {"bridges": ["named-uuid", "b"], "external_ids": ids}}),
    ];
    let result = local.connect().expect("a session").transact("Open_vSwitch", &operations);
    let result = result.expect("a transaction");
    assert!(result.as_array().is_some_and(|all| all.len() == operations.len()), "{result}");
    local
}

/// A flow comes, an older one is told something else, an old one goes.
fn change_flows(world: &World, n: u32) {
    let is = |n: u32| json!([["priority", "==", 100 + n]]);
    let ip = |n: u32| format!("ip4.dst == 10.0.{}.{}", n / 256, n % 256);
    let flow = |datapath: &Value| {
        json!({"op": "insert", "table": "Logical_Flow", "row": {"logical_datapath": datapath,
            "pipeline": "ingress", "table_id": 0, "priority": 100 + n, "match": ip(n),
            "actions": "next;"}})
    };
    if n == 1 {
        let operations = [
            json!({"op": "insert", "table": "SB_Global", "row": {}}),
            json!({"op": "insert", "table": "Datapath_Binding", "uuid-name": "d",
                "row": {"tunnel_key": 1}}),
            json!({"op": "insert", "table": "Port_Binding", "row": {"logical_port": "p1",
                "tunnel_key": 1, "datapath": ["named-uuid", "d"]}}),
            flow(&json!(["named-uuid", "d"])),
        ];
        transact(world, "OVN_Southbound", &operations);
        return;
    }
    let select = json!({"op": "select", "table": "Datapath_Binding", "where": [],
        "columns": ["_uuid"]});
    let found = transact(world, "OVN_Southbound", &[select]);
    let operations = [
        flow(&found[0]["rows"][0]["_uuid"]),
        json!({"op": "update", "table": "Logical_Flow", "where": is(n / 2),
            "row": {"match": format!("{} && tcp", ip(n))}}),
        json!({"op": "delete", "table": "Logical_Flow", "where": is(n.saturating_sub(6))}),
    ];
    transact(world, "OVN_Southbound", &operations);
}

/// What `ovsdb-client` prints of a return: whether its id was found, and the id that it has now.
fn since(scratch: &Scratch, world: &World, id: &str) -> Option<(bool, String)> {
    let program = reference("ovsdb-client")?;
    let remote = format!("unix:{}", world.server().socket().display());
    let mut command = scratch.command(program);
    command.args(["monitor-cond-since", &remote, "OVN_Northbound", id, "[]"]);
    let mut client = Running::start(command.args(["Logical_Switch", "name,external_ids"]));
    let line = client.line_with("found: ");
    let (found, id) = line.split_once(", last_id: ").expect("both are printed");
    Some((found == "found: true", id.trim().to_owned()))
}

/// A client that keeps an id that was refused is refused ever after, whatever happens; one that
/// takes the new one is resumed.
#[test]
fn an_id_that_was_refused_is_never_accepted_later() {
    let Some(stock) = process::reference() else { return };
    let scratch = Scratch::new();
    let Some(schema) = schema(&scratch, NORTHBOUND, false) else { return };
    let mut world = World::new(&scratch, stock, &[schema]);
    world.proxy.close();
    let Some((false, first)) = since(&scratch, &world, NOTHING) else {
        assert!(reference("ovsdb-client").is_none(), "nothing was found");
        return;
    };
    world.change(&mut change_network);
    let (found, mut last) = since(&scratch, &world, &first).expect("ovsdb-client is there");
    assert!(found && last != first, "{first} {last}");
    let mut refused = Vec::new();
    for &what in WHILES {
        world.meanwhile(what, &mut change_network);
        let (found, new) = since(&scratch, &world, &last).expect("ovsdb-client is there");
        assert_eq!(found, what != Meanwhile::Stock, "{what:?}");
        assert_ne!(new, last, "{what:?}: other states have other ids");
        if !found {
            refused.extend([first.clone(), last]);
        }
        last = new;
        for id in &refused {
            let (found, now) = since(&scratch, &world, id).expect("ovsdb-client is there");
            assert!(!found, "{what:?}: {id} was refused before");
            assert_eq!(now, last, "everybody is told the same id");
        }
    }
    assert!(!refused.is_empty());
}

/// A daemon that has left its parent; ended with its owner.
struct Detached(String);

impl Detached {
    fn start(mut command: Command, pidfile: &str) -> Self {
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{output:?}");
        let pid = std::fs::read_to_string(pidfile).expect("its pid");
        Self(pid.trim().to_owned())
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0]).status();
    }
}
