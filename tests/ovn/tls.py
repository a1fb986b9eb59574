"""TLS as OVN's documentation sets it up: certificates by ovs-pki, everything else in tables."""

import os
import subprocess

import pypi
from processes import OVN, Failure, run, wait_until
from service import free_ports


class Certificates:
    """A certificate authority and certificates of it, by ovs-pki."""

    def __init__(self, folder, env):
        self.folder = f"{folder}/pki"
        self.env = env
        os.makedirs(self.folder)
        self.pki = ["ovs-pki", f"--dir={self.folder}/ca", f"--log={self.folder}/log"]
        run([*self.pki, "init", "--force"], env)
        self.ca = f"{self.folder}/ca/switchca/cacert.pem"

    def make(self, name):
        """Private key and certificate of a new peer."""
        done = subprocess.run([*self.pki, "-b", "req+sign", name, "switch"], cwd=self.folder,
                              env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"ovs-pki req+sign {name}: {done.stderr}")
        return f"{self.folder}/{name}-privkey.pem", f"{self.folder}/{name}-cert.pem"


def secured(folder, env, python):
    """A northbound database that listens for TLS, by rows of its own tables."""
    certificates = Certificates(folder, env)
    database = f"{folder}/db/tls.db"
    run(["ovsdb-tool", "create", database, f"{OVN}/ovn-nb.ovsschema"], env)
    run([f"{folder}/sbin/ovsdb-server", "-vconsole:off", f"--log-file={folder}/log/tls.log",
         f"--remote=punix:{folder}/run/tls.sock", "--detach", f"--pidfile={folder}/run/tls.pid",
         f"--unixctl={folder}/run/tls.ctl", "--remote=db:OVN_Northbound,NB_Global,connections",
         "--private-key=db:OVN_Northbound,SSL,private_key",
         "--certificate=db:OVN_Northbound,SSL,certificate",
         "--ca-cert=db:OVN_Northbound,SSL,ca_cert",
         "--ssl-protocols=db:OVN_Northbound,SSL,ssl_protocols",
         "--ssl-ciphers=db:OVN_Northbound,SSL,ssl_ciphers", database], env)
    plain = ["ovn-nbctl", f"--db=unix:{folder}/run/tls.sock", "--timeout=30"]
    port = free_ports(1)[0]
    run([*plain, "init"], env)
    run([*plain, "set-connection", f"pssl:{port}:127.0.0.1"], env)
    server = certificates.make("server")
    run([*plain, "set-ssl", *server, certificates.ca], env)
    client = certificates.make("client")
    remote = f"ssl:127.0.0.1:{port}"
    options = [f"--private-key={client[0]}", f"--certificate={client[1]}",
               f"--ca-cert={certificates.ca}"]
    secure = ["ovn-nbctl", f"--db={remote}", "--timeout=30", *options]
    run([*secure, "ls-add", "over-tls"], env)
    if "over-tls" not in run([*secure, "ls-list"], env):
        raise Failure("the switch is not there")
    listed = run(["ovsdb-client", "-t", "30", "list-dbs", remote, *options], env)
    if "OVN_Northbound" not in listed.split():
        raise Failure(f"ovsdb-client over TLS: {listed!r}")
    _stranger(folder, env, remote, secure)
    _rotated(certificates, plain, secure, env)
    status = run([*plain, "--bare", "--columns=is_connected", "list", "Connection"], env)
    if status.strip() not in ("true", "false"):
        raise Failure(f"is_connected: {status!r}")
    if python is not None:
        run([*plain, "ls-del", "over-tls"], env)
        pypi.northbound(python, remote, *client, certificates.ca)
    run(["ovs-appctl", "-t", f"{folder}/run/tls.ctl", "exit"], env)


def _stranger(folder, env, remote, secure):
    """A client of another authority gets nothing, and the server goes on."""
    other = Certificates(f"{folder}/stranger", env)
    key, certificate = other.make("stranger")
    command = ["ovn-nbctl", f"--db={remote}", "--timeout=3", f"--private-key={key}",
               f"--certificate={certificate}", f"--ca-cert={other.ca}", "ls-list"]
    if subprocess.run(command, env=env, capture_output=True).returncode == 0:
        raise Failure("a certificate of a strange authority was accepted")
    run([*secure, "ls-list"], env)


def _rotated(certificates, plain, secure, env):
    """A new certificate in the same files serves new connections; old ones live on."""
    monitor = subprocess.Popen(["ovsdb-client", "monitor", secure[1].removeprefix("--db="),
                                *secure[3:6], "OVN_Northbound", "Logical_Switch", "name"],
                               env=env, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter(monitor.stdout.readline, "")
        next(line for line in lines if "over-tls" in line)
        key, certificate = certificates.make("renewed")
        server_key = f"{certificates.folder}/server-privkey.pem"
        os.replace(key, server_key)
        os.replace(certificate, f"{certificates.folder}/server-cert.pem")

        def renewed():
            asked = subprocess.run(
                ["openssl", "s_client", "-connect", secure[1].removeprefix("--db=ssl:")],
                env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            return "renewed" in asked.stdout

        wait_until("the new certificate to be served", renewed, patience=20)
        run([*plain, "ls-add", "seen-by-the-old-session"], env)
        next(line for line in lines if "seen-by-the-old-session" in line)
    except StopIteration:
        raise Failure("the monitor over TLS ended") from None
    finally:
        monitor.kill()
        monitor.wait()
    run([*secure, "ls-del", "seen-by-the-old-session"], env)
