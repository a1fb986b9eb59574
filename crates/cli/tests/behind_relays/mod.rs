//! The packaged programs of OVN behind relays: `ovn-ctl` starts one, and a hypervisor lives behind three.

use std::process::{Child, Command};

use crate::group::free_ports;
use crate::peer::Client;
use crate::support::{Scratch, err, eventually, is_complaint, out, reference};

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

/// `ovn-ctl start_sb_relay_ovsdb` gives the relay remotes and keys that are in its database, before there
/// is a database.
#[test]
fn ovn_ctl_starts_a_relay() {
    const OVN_CTL: &str = "/usr/share/ovn/scripts/ovn-ctl";
    let Some(sbctl) = reference("ovn-sbctl") else { return };
    let scratch = Scratch::new();
    let weir = scratch.link("ovsdb-server");
    run(scratch.command(scratch.link("ovsdb-tool")).args([
        "create",
        "sb.db",
        "/usr/share/ovn/ovn-sb.ovsschema",
    ]));
    let mut command = scratch.command(&weir);
    command.args(["--no-chdir", "-vconsole:off", "--remote=punix:sb.sock", "sb.db"]);
    let _source = Children(vec![command.arg("--unixctl=sb.ctl").spawn().expect("it starts")]);
    let source = format!("unix:{}", scratch.text("sb.sock"));
    eventually("the source listens", || Client::connect(&scratch.path("sb.sock")).is_ok());
    let sb = |db: &str, args: &[&str]| {
        let words = ["-t", "60", "--no-leader-only", "--bare", "--db", db];
        run(scratch.command(&sbctl).args(words).args(args))
    };
    let port = free_ports(1)[0];
    sb(&source, &["init"]);
    sb(&source, &["set-connection", &format!("ptcp:{port}:127.0.0.1")]);

    let folder = scratch.path("relay");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = format!("{}:{}", scratch.text("bin"), std::env::var("PATH").unwrap_or_default());
    let ctl = |args: &[&str]| {
        let mut command = scratch.command("timeout");
        for name in ["OVS_RUNDIR", "OVN_RUNDIR", "OVN_DBDIR", "OVN_LOGDIR", "OVS_LOGDIR"] {
            command.env(name, &folder);
        }
        run(command.env("PATH", &path).args(["120", OVN_CTL]).args(args))
    };
    let remote = format!("--db-sb-relay-remote={source}");
    // Which remotes it has, it knows when it has its rows.
    let listens = || {
        eventually("the relay listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    };
    ctl(&["start_sb_relay_ovsdb", &remote]);
    listens();
    let relay = format!("tcp:127.0.0.1:{port}");
    sb(&relay, &["chassis-add", "hv1", "geneve", "192.0.2.1"]);
    assert_eq!(sb(&source, &["--columns=name", "list", "Chassis"]).trim(), "hv1");
    ctl(&["restart_sb_relay_ovsdb", &remote]);
    listens();
    assert_eq!(sb(&relay, &["--columns=name", "list", "Chassis"]).trim(), "hv1");
    ctl(&["stop_sb_relay_ovsdb"]);
    assert!(!folder.join("ovnsb_relay_db.pid").exists());
    let log = std::fs::read_to_string(folder.join("ovsdb-server-sb-relay.log")).expect("the log");
    let bad = log.lines().find(|line| is_complaint(line));
    assert_eq!(bad, None);
}
