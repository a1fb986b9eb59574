"""Servers and daemons of a run: started in a folder of their own, ended with it."""

import os
import shutil
import signal
import socket
import subprocess
import time

# Seconds within which a program of the scenario must do its part.
PATIENCE = 120

OVN = "/usr/share/ovn"
OVS = "/usr/share/openvswitch"

# Database, file and schema of everything that a side serves.
DATABASES = {
    "nb": ("OVN_Northbound", f"{OVN}/ovn-nb.ovsschema"),
    "sb": ("OVN_Southbound", f"{OVN}/ovn-sb.ovsschema"),
    "conf": ("Open_vSwitch", f"{OVS}/vswitch.ovsschema"),
}


class Failure(Exception):
    """The scenario found something wrong; the text says what."""


def run(command, env=None, patience=PATIENCE):
    """Runs a program to its end and returns its output."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise Failure(f"no end after {patience} s: {' '.join(command)[:300]}") from None
    if done.returncode != 0:
        raise Failure(f"exit {done.returncode}: {' '.join(command)[:300]}\n{done.stderr.strip()}")
    return done.stdout


def wait_until(what, condition, patience=PATIENCE):
    """Polls `condition` until it is true."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"waited {patience} s for {what}")
        time.sleep(0.05)


class Side:
    """One server program with its files, sockets and clients, in a folder."""

    def __init__(self, name, program, folder):
        self.name = name
        self.folder = folder
        self.children = []
        os.makedirs(f"{folder}/sbin")
        os.makedirs(f"{folder}/run")
        # The name by which it is called makes the program the server.
        self.server = f"{folder}/sbin/ovsdb-server"
        os.symlink(program, self.server)
        run_folder = f"{folder}/run"
        self.env = dict(os.environ, OVN_RUNDIR=run_folder, OVS_RUNDIR=run_folder,
                        OVN_LOGDIR=run_folder, OVS_LOGDIR=run_folder, OVN_DBDIR=folder,
                        OVS_DBDIR=folder, LC_ALL="C")

    def file(self, key):
        return f"{self.folder}/{key}.db"

    def socket(self, key):
        return f"{self.folder}/run/{key}.sock"

    def admin(self, key):
        return f"{self.folder}/run/{key}.ctl"

    def create_files(self):
        for key, (_, schema) in DATABASES.items():
            run(["ovsdb-tool", "create", self.file(key), schema])

    def take_files(self, other):
        """Copies the databases of another, stopped side."""
        for key in DATABASES:
            shutil.copyfile(other.file(key), self.file(key))

    def start_servers(self):
        for key in DATABASES:
            self.spawn([self.server, "-vconsole:off", f"--log-file={self.folder}/run/{key}.log",
                        f"--remote=punix:{self.socket(key)}", f"--unixctl={self.admin(key)}",
                        f"--pidfile={self.folder}/run/{key}.pid", self.file(key)], key)
        for key, (database, _) in DATABASES.items():
            wait_until(f"{self.name}'s socket for {key}", lambda: self.listens(key))
            listed = run(["ovsdb-client", "--timeout=30", "list-dbs", f"unix:{self.socket(key)}"])
            if database not in listed.split():
                raise Failure(f"{self.name} does not serve {database}: {listed!r}")

    def listens(self, key):
        """Whether the server accepts; a socket file alone may be left from one that was killed."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.socket(key))
            except OSError:
                return False
        return True

    def spawn(self, command, what):
        """Starts a program in the foreground; it must live until `stop`."""
        log = open(f"{self.folder}/run/{what}.out", "wb")
        child = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=log, start_new_session=True)
        log.close()
        self.children.append((what, child))
        return child

    def start_northd(self):
        self.spawn(["ovn-northd", f"--ovnnb-db=unix:{self.socket('nb')}",
                    f"--ovnsb-db=unix:{self.socket('sb')}", "-vconsole:off",
                    f"--log-file={self.folder}/run/northd.log",
                    f"--unixctl={self.admin('northd')}"], "ovn-northd")

    def start_vswitchd(self):
        self.spawn(["ovs-vswitchd", f"unix:{self.socket('conf')}", "--enable-dummy=override",
                    "--disable-system", "-vconsole:off",
                    f"--log-file={self.folder}/run/vswitchd.log",
                    f"--unixctl={self.admin('vswitchd')}"], "ovs-vswitchd")

    def nbctl(self, commands, *options):
        return self._ctl("ovn-nbctl", "nb", commands, options)

    def sbctl(self, commands, *options):
        return self._ctl("ovn-sbctl", "sb", commands, options)

    def vsctl(self, commands, *options):
        return self._ctl("ovs-vsctl", "conf", commands, options)

    def _ctl(self, program, key, commands, options):
        """One invocation, and so one transaction, for a batch of commands."""
        words = [program, f"--timeout={PATIENCE}", f"--db=unix:{self.socket(key)}", *options]
        for command in commands:
            words += ["--", *command]
        return run(words, self.env, patience=PATIENCE + 10)

    def appctl(self, key, *words):
        return run(["ovs-appctl", "-T", "30", "-t", self.admin(key), *words], self.env)

    def check_alive(self):
        for what, child in self.children:
            if child.poll() is not None:
                raise Failure(f"{self.name}: {what} ended with {child.returncode}; "
                              + self.last_words(what))

    def last_words(self, what):
        with open(f"{self.folder}/run/{what}.out", errors="replace") as log:
            return log.read()[-2000:].strip() or "it said nothing"

    def stop(self):
        """Ends clients first, then servers, all by TERM; says who did not obey."""
        stubborn = []
        for what, child in reversed(self.children):
            early = child.poll()
            if early is not None:
                stubborn.append(f"{what} had ended with {early}: {self.last_words(what)}")
                continue
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                stubborn.append(f"{what} did not end within 10 s of TERM")
        self.children.clear()
        if stubborn:
            raise Failure(f"{self.name}: " + "; ".join(stubborn))

    def kill(self):
        """Ends whatever is left, without a word."""
        for _, child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        self.children.clear()
