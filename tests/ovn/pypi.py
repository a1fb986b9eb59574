"""The packages `ovs` and `ovsdbapp` as their users install them."""

import os
import subprocess
import sys

from processes import run

HERE = os.path.dirname(os.path.realpath(__file__))

# Seconds that a download may take; without a network there is nothing to test.
PATIENCE = 180


def environment(folder):
    """An interpreter with the packages, or None and the reason."""
    made = f"{folder}/pypi"
    for command in ([sys.executable, "-m", "venv", made],
                    [f"{made}/bin/pip", "install", "--quiet", "--disable-pip-version-check",
                     "--retries", "1", "--timeout", "15", "ovs", "ovsdbapp"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        if done.returncode != 0:
            return None, (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return f"{made}/bin/python", None


def northbound(python, remote, *tls):
    run([python, os.path.join(HERE, "ovsdbapp_client.py"), remote, *tls])
