"""ovs-ctl and ovn-ctl, the scripts that packages start servers with.

They find the server by name in PATH, so a folder with the link `ovsdb-server`
goes first. They run as copies in a folder of their own, with every path that
they touch below it, and with the loader of kernel modules replaced.
"""

import os
import shutil
import signal
import socket
import subprocess
import time

from processes import OVN, OVS, Failure, run, wait_until

SYSTEM_ID = "6f5902ac-237a-4d71-9a2c-1a2b3c4d5e6f"


def start_and_stop(programs, folder):
    """Starts and stops everything once by each script."""
    env = prepare(programs, folder)
    _ovs_ctl(folder, env)
    _ovn_ctl(folder, env)


def prepare(programs, folder):
    """A folder with copies of the scripts; `programs` are links by name to put before PATH."""
    for name in ("sbin", "run", "log", "etc/openvswitch", "etc/ovn", "db"):
        os.makedirs(f"{folder}/{name}")
    for name, program in programs.items():
        os.symlink(program, f"{folder}/sbin/{name}")
    for source, name in ((OVS, "openvswitch"), (OVN, "ovn")):
        shutil.copytree(f"{source}/scripts", f"{folder}/share/{name}/scripts")
        for file in os.listdir(source):
            if file.endswith(".ovsschema"):
                shutil.copy(f"{source}/{file}", f"{folder}/share/{name}/{file}")
    loader = f"{folder}/share/openvswitch/scripts/ovs-kmod-ctl"
    with open(loader, "w") as file:
        file.write("#!/bin/sh\n# The dummy datapath needs no kernel module.\nexit 0\n")
    os.chmod(loader, 0o755)
    env = {key: value for key, value in os.environ.items()
           if not key.startswith(("OVS_", "OVN_"))}
    env.update(
        PATH=f"{folder}/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        OVS_RUNDIR=f"{folder}/run", OVN_RUNDIR=f"{folder}/run",
        OVS_LOGDIR=f"{folder}/log", OVN_LOGDIR=f"{folder}/log",
        OVS_SYSCONFDIR=f"{folder}/etc", OVN_SYSCONFDIR=f"{folder}/etc",
        OVS_DBDIR=f"{folder}/db", OVN_DBDIR=f"{folder}/db",
        OVS_PKGDATADIR=f"{folder}/share/openvswitch", OVN_PKGDATADIR=f"{folder}/share/ovn",
        OVS_SBINDIR=f"{folder}/sbin",
    )
    return env


def _ovs_ctl(folder, env):
    script = f"{folder}/share/openvswitch/scripts/ovs-ctl"
    start = [script, "start", f"--system-id={SYSTEM_ID}", "--system-type=test",
             "--system-version=1", "--no-mlockall", "--no-record-hostname",
             "--no-force-corefiles",
             "--ovs-vswitchd-options=--enable-dummy=override --disable-system"]
    said = run(start, env)
    _expect_running(folder, "ovsdb-server", program_name="ovsdb-server", said=said)
    _expect_running(folder, "ovs-vswitchd", program_name="ovs-vswitchd", said=said)
    socket = f"--db=unix:{folder}/run/db.sock"
    found = run(["ovs-vsctl", socket, "get", "Open_vSwitch", ".", "external_ids:system-id"], env)
    if SYSTEM_ID not in found:
        raise Failure(f"ovs-ctl start: no system-id in the database: {found!r}")
    run(["ovs-vsctl", "--timeout=60", socket, "add-br", "br0"], env)
    if "ovsdb-server is running" not in run([script, "status"], env):
        raise Failure("ovs-ctl status does not see ovsdb-server")
    # A script that finds the server running must leave it alone.
    pid = pid_of(folder, "ovsdb-server")
    if "already running" not in run(start, env) or pid_of(folder, "ovsdb-server") != pid:
        raise Failure("a second ovs-ctl start did not find ovsdb-server running")
    _stop(folder, env, [script, "stop"], ["ovsdb-server", "ovs-vswitchd"])
    # And what was written is there after the next start.
    run(start, env)
    if run(["ovs-vsctl", "--timeout=60", socket, "list-br"], env).split() != ["br0"]:
        raise Failure("ovs-ctl: the bridge is gone after a restart")
    _stop(folder, env, [script, "stop"], ["ovsdb-server", "ovs-vswitchd"])


def _ovn_ctl(folder, env):
    script = f"{folder}/share/ovn/scripts/ovn-ctl"
    said = run([script, "start_northd"], env)
    for pidfile in ("ovnnb_db", "ovnsb_db"):
        _expect_running(folder, pidfile, program_name="ovsdb-server", said=said)
    _expect_running(folder, "ovn-northd", program_name="ovn-northd", said=said)
    nb = f"--db=unix:{folder}/run/ovnnb_db.sock"
    run(["ovn-nbctl", nb, "--timeout=60", "--wait=sb", "ls-add", "sw0"], env)
    sb = f"--db=unix:{folder}/run/ovnsb_db.sock"
    if "sw0" not in run(["ovn-sbctl", sb, "--timeout=60", "list", "Datapath_Binding"], env):
        raise Failure("ovn-ctl: northd did not bring the switch southbound")
    _connection_row(env, nb)
    status = run([script, "status_northd"], env)
    if "is running" not in status:
        raise Failure(f"ovn-ctl status_northd: {status!r}")
    _stop(folder, env, [script, "stop_northd"], ["ovnnb_db", "ovnsb_db", "ovn-northd"])


def _connection_row(env, nb):
    """A row of the table Connection opens a port, and closes it when it goes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run(["ovn-nbctl", nb, "set-connection", f"ptcp:{port}:127.0.0.1"], env)
    remote = f"tcp:127.0.0.1:{port}"
    if "sw0" not in run(["ovn-nbctl", f"--db={remote}", "--timeout=30", "ls-list"], env):
        raise Failure(f"{remote} does not show the switch")
    run(["ovn-nbctl", nb, "del-connection"], env)

    def closed():
        command = ["ovsdb-client", "--timeout=5", "list-dbs", remote]
        return subprocess.run(command, env=env, capture_output=True).returncode != 0

    wait_until(f"{remote} to be closed", closed, patience=20)


def pid_of(folder, name):
    with open(f"{folder}/run/{name}.pid") as file:
        return int(file.read())


def _expect_running(folder, pidfile, program_name, said):
    try:
        pid = pid_of(folder, pidfile)
        with open(f"/proc/{pid}/comm") as file:
            comm = file.read().strip()
    except (OSError, ValueError) as error:
        raise Failure(f"{pidfile} is not running: {error}\n{said}") from None
    if comm != program_name:
        raise Failure(f"{pidfile}: process {pid} is called {comm!r}, not {program_name!r}")


def _stop(folder, env, command, names):
    """Stops by script; a daemon that needed a signal did not obey `exit` in time."""
    pids = {name: pid_of(folder, name) for name in names}
    said = run(command, env)
    for name, pid in pids.items():
        wait_until(f"{name} to be gone", lambda: not lives(pid), patience=10)
    if "Killing" in said:
        raise Failure(f"{' '.join(command)}: a daemon did not end on `exit`:\n{said}")
    for name in names:
        wait_until(f"{name}.pid to be removed",
                   lambda: not os.path.exists(f"{folder}/run/{name}.pid"), patience=5)


def lives(pid):
    """Whether the process runs; a dead child that nobody waited for does not count."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(folder):
    """Ends daemons that a failed run left, by their pid files."""
    if not os.path.isdir(f"{folder}/run"):
        return
    for file in os.listdir(f"{folder}/run"):
        if not file.endswith(".pid"):
            continue
        try:
            pid = pid_of(folder, file.removesuffix(".pid"))
            with open(f"/proc/{pid}/cmdline") as cmdline:
                if folder not in cmdline.read():
                    continue
            # The monitor process restarts what dies, so it goes first.
            with open(f"/proc/{pid}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{parent}/cmdline") as cmdline:
                if folder in cmdline.read() or "monitoring pid" in cmdline.read():
                    os.kill(parent, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            continue
    time.sleep(0.1)
