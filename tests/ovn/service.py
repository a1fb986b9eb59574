"""What operators' scripts do to a running service: upgrade, rotate logs, fail over.

Each function gets a folder prepared by `scripts.prepare`: copies of the packaged
scripts, links to the programs under test in front of PATH.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time

from processes import OVN, OVS, Failure, run, wait_until
from scripts import SYSTEM_ID, lives, pid_of

# What the agent finds where pacemaker would be.
OCF_SHELLFUNCS = """
OCF_SUCCESS=0; OCF_ERR_GENERIC=1; OCF_ERR_UNIMPLEMENTED=3; OCF_ERR_INSTALLED=5
OCF_NOT_RUNNING=7; OCF_RUNNING_MASTER=8
ocf_log() { shift; echo "ocf: $*" >&2; sleep 1; }
ocf_local_nodename() { echo "$OCF_TEST_NODE"; }
"""


def upgrade(folder, env):
    """ovs-ctl start on a database with an older schema: backup, compact, convert."""
    script = f"{folder}/share/openvswitch/scripts/ovs-ctl"
    with open(f"{OVS}/vswitch.ovsschema") as file:
        schema = json.load(file)
    new = schema["version"]
    schema.update(version="7.0.0", cksum="1 1")
    del schema["tables"]["Bridge"]["columns"]["mcast_snooping_enable"]
    schema["tables"]["Gone"] = {"columns": {"name": {"type": "string"}}, "isRoot": True}
    schema["tables"]["Open_vSwitch"].setdefault("isRoot", True)
    old = f"{folder}/old.ovsschema"
    with open(old, "w") as file:
        json.dump(schema, file)
    database = f"{folder}/db/conf.db"
    run(["ovsdb-tool", "create", database, old], env)
    rows = [{"op": "insert", "table": "Open_vSwitch", "uuid-name": "o",
             "row": {"bridges": ["named-uuid", "b"]}},
            {"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "kept"}},
            {"op": "insert", "table": "Gone", "row": {"name": "x"}}]
    run(["ovsdb-tool", "transact", database, json.dumps(["Open_vSwitch", *rows])], env)
    said = run([script, "start", f"--system-id={SYSTEM_ID}", "--system-type=test",
                "--system-version=1", "--no-mlockall", "--no-record-hostname",
                "--no-force-corefiles", "--no-ovs-vswitchd"], env)
    if "Converting database schema" not in said:
        raise Failure(f"ovs-ctl did not convert:\n{said}")
    if not os.path.exists(f"{database}.backup7.0.0-1"):
        raise Failure(f"no backup in {sorted(os.listdir(os.path.dirname(database)))}:\n{said}")
    socket_option = f"--db=unix:{folder}/run/db.sock"
    if run(["ovs-vsctl", "--no-wait", socket_option, "list-br"], env).split() != ["kept"]:
        raise Failure("the bridge did not survive the upgrade")
    version = run(["ovsdb-client", "get-schema-version", f"unix:{folder}/run/db.sock"], env)
    if version.strip() != new:
        raise Failure(f"schema version {version!r}, not {new}")
    _online(folder, env, old)
    run([script, "stop"], env)


def _online(folder, env, schema):
    """`ovsdb-client convert` on the running server, there and back."""
    server = f"unix:{folder}/run/db.sock"
    for target, answer in ((schema, "yes"), (f"{OVS}/vswitch.ovsschema", "yes")):
        needed = run(["ovsdb-client", "needs-conversion", server, target], env).strip()
        if needed != answer:
            raise Failure(f"needs-conversion to {target}: {needed}")
        run(["ovsdb-client", "-t", "30", "convert", server, target], env)
    socket_option = f"--db={server}"
    if run(["ovs-vsctl", "--no-wait", socket_option, "list-br"], env).split() != ["kept"]:
        raise Failure("the bridge did not survive the online conversion")


def rotate(folder, env):
    """What /etc/logrotate.d does: rename, then vlog/reopen by pid file."""
    script = f"{folder}/share/openvswitch/scripts/ovs-ctl"
    run([script, "start", f"--system-id={SYSTEM_ID}", "--system-type=test", "--system-version=1",
         "--no-mlockall", "--no-record-hostname", "--no-force-corefiles", "--no-ovs-vswitchd"],
        env)
    log = f"{folder}/log/ovsdb-server.log"
    os.rename(log, f"{log}.1")
    run(["ovs-appctl", "-t", "ovsdb-server", "vlog/reopen"], env)
    with open(log) as file:
        if "opened log file" not in file.read():
            raise Failure("vlog/reopen did not open a new log")
    pid = pid_of(folder, "ovsdb-server")
    held = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    if f"{log}.1" in held:
        raise Failure("the rotated log is still open")
    run([script, "stop"], env)


def foreground(folder, env):
    """`ovn-ctl run_nb_ovsdb`, as containers start it, ended by TERM."""
    script = f"{folder}/share/ovn/scripts/ovn-ctl"
    command = [script, "--db-nb-create-insecure-remote=no", "run_nb_ovsdb"]
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        nb = f"--db=unix:{folder}/run/ovnnb_db.sock"
        wait_until("run_nb_ovsdb to serve",
                   lambda: os.path.exists(f"{folder}/run/ovnnb_db.sock"), patience=60)
        run(["ovn-nbctl", nb, "--timeout=60", "ls-add", "foreground"], env)
        with open(f"/proc/{child.pid}/comm") as comm:
            if comm.read().strip() != "ovsdb-server":
                raise Failure("run_nb_ovsdb is not the server itself")
        child.terminate()
        if child.wait(timeout=20) != -15:
            raise Failure(f"run_nb_ovsdb ended with {child.returncode}, not by TERM")
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


class Node:
    """One machine of a pacemaker cluster, as far as the agent can tell."""

    def __init__(self, name, folder, env, ports):
        self.name = name
        self.folder = folder
        bin_folder = f"{folder}/crm"
        os.makedirs(f"{bin_folder}/lib/heartbeat")
        with open(f"{bin_folder}/lib/heartbeat/ocf-shellfuncs", "w") as file:
            file.write(OCF_SHELLFUNCS)
        for tool in ("crm_master", "crm_attribute"):
            with open(f"{bin_folder}/{tool}", "w") as file:
                file.write("#!/bin/sh\nexit 0\n")
            os.chmod(f"{bin_folder}/{tool}", 0o755)
        self.ctl = f"{folder}/share/ovn/scripts/ovn-ctl"
        self.env = dict(
            env, OCF_FUNCTIONS_DIR=f"{bin_folder}/lib/heartbeat", HA_SBIN_DIR=bin_folder,
            OCF_TEST_NODE=name, OCF_RESKEY_ovn_ctl=self.ctl, OCF_RESKEY_master_ip="127.0.0.1",
            OCF_RESKEY_nb_master_port=str(ports[0]), OCF_RESKEY_sb_master_port=str(ports[1]),
            OCF_RESKEY_manage_northd="no")

    def agent(self, action, expected=0, **environment):
        env = dict(self.env, __OCF_ACTION=action, **environment)
        done = subprocess.run([f"{OVN}/scripts/ovndb-servers.ocf"], env=env, capture_output=True,
                              text=True, timeout=120)
        if done.returncode != expected:
            raise Failure(f"{self.name}: agent {action}: exit {done.returncode}, not {expected}\n"
                          f"{done.stdout}{done.stderr}")

    def nbctl(self, *words):
        command = ["ovn-nbctl", f"--db=unix:{self.folder}/run/ovnnb_db.sock", "--timeout=30"]
        return run([*command, *words], self.env)


def failover(first, second):
    """The agent starts a master and a backup, and moves the mastership."""
    running, master = 0, 8
    first.agent("start")
    first.agent("monitor", running)
    first.agent("promote")
    first.agent("monitor", master)
    first.nbctl("ls-add", "before")
    second.agent("start", OCF_RESKEY_CRM_meta_notify_master_uname=first.name)
    second.agent("monitor", running)
    wait_until("the backup to have the switch", lambda: "before" in second.nbctl("ls-list"))
    refused = subprocess.run(["ovn-nbctl", f"--db=unix:{second.folder}/run/ovnnb_db.sock",
                              "--timeout=10", "ls-add", "refused"], env=second.env,
                             capture_output=True, text=True)
    if refused.returncode == 0 or "not allowed" not in refused.stderr:
        raise Failure(f"the backup took a write: {refused.stderr}")
    first.agent("demote", OCF_RESKEY_CRM_meta_notify_master_uname=first.name)
    first.agent("stop")
    second.agent("promote")
    second.agent("monitor", master)
    second.nbctl("ls-add", "after")
    if set(re.findall(r"\((\w+)\)", second.nbctl("ls-list"))) != {"before", "after"}:
        raise Failure(f"after the failover: {second.nbctl('ls-list')!r}")
    second.agent("stop")
    second.agent("monitor", 7)


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
