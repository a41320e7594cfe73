"""Runs inside a virtual machine: reads the machine, runs ompbind, and prints all results as JSON.

Nothing is checked here: the tests outside compare the kernel and ompbind. Only the standard
library is used. The argument is the task that `machines.make_task` makes.
"""

import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
TIMEOUT_S = 60
"""Emulated CPUs are slow, but a command of ompbind that takes this long hangs."""

KERNEL = ("online", "offline", "isolated", "nohz_full")
SHOW = 'exec cat /proc/self/environ /proc/self/status /proc/self/numa_maps >"$0/$OMPBIND_RANK"'
"""A rank writes its environment, status and memory to its own file, so that lines never mix."""

INHERITED = {**os.environ, "GOMP_CPU_AFFINITY": "0"}
"""Every plan clears GOMP_CPU_AFFINITY: ranks must not have it, and each run prints a note about it."""


def main():
    task = json.loads(sys.argv[1])
    results = {
        "kernel": {name: Path("/sys/devices/system/cpu", name).read_text() for name in KERNEL},
        "allowed": status_value(Path("/proc/self/status").read_text()),
        "topo": finish([OMPBIND, "topo", "--format", "json"])["out"],
        "placed": {options: place(options) for options in task["placed"]},
        "memory_policies": {options: bind(options) for options in task["memory_policies"]},
        "refused": {options: bind(options) for options in task["refused"]},
        "paused": [run_paused(*row) for row in task["paused"]],
    }
    print(json.dumps(results))


def status_value(status, key="Cpus_allowed_list"):
    return next(line.split(":")[1].strip() for line in status.splitlines() if line.startswith(f"{key}:"))


def finish(command):
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(command, text=True, timeout=TIMEOUT_S, env=INHERITED, **pipes)
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def place(options):
    return {"plan": finish([*make_command("plan", options), "--format", "json"]), "run": bind(options)}


def bind(options):
    with tempfile.TemporaryDirectory() as directory:
        done = finish([*run_command(options), directory])
        return {**done, "ranks": read_ranks(directory)}


def run_command(options):
    return [*make_command("run", options), "--", "sh", "-c", SHOW]


def make_command(verb, options):
    """Return a command line; text before a colon is a command that starts ompbind."""
    before, _, own = options.rpartition(" : ")
    return [*shlex.split(before), OMPBIND, verb, "--run-id", "vm", *shlex.split(own)]


def read_ranks(directory):
    """What ranks have written; ranks that were stopped while writing are left out."""
    ranks = {}
    for path in Path(directory).iterdir():
        environ, _, status = path.read_text(errors="surrogateescape").rpartition("\0")
        if "Cpus_allowed_list" not in status:
            continue
        memory = [line.split(" ", 1)[1] for line in status.splitlines() if " stack " in line]
        env = dict(item.split("=", 1) for item in environ.split("\0"))
        ranks[path.name] = {"env": env, "allowed": status_value(status), "memory": memory}
    return ranks


def run_paused(options, changed, then, afterwards):
    """Run ranks, and change the machine after planning and before binding.

    Before it starts ranks, ompbind prints which variable it clears. Standard error is a full pipe, so this
    blocks until the pipe is read.
    """
    reader, writer = os.pipe()
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)))
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [*run_command(options), directory], stderr=writer, stdin=subprocess.DEVNULL, env=INHERITED
        )
        os.close(writer)
        paused = waits_for_pipe(process)
        Path(changed).write_text(then)
        with open(reader) as pipe:
            err = pipe.read().lstrip("\0")
        code = process.wait(TIMEOUT_S)
        Path(changed).write_text(afterwards)
        return {"paused": paused, "code": code, "err": err, "ranks": read_ranks(directory)}


def waits_for_pipe(process):
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if Path(f"/proc/{process.pid}/wchan").read_text().startswith("pipe"):
            return True
        time.sleep(0.02)
    return False


if __name__ == "__main__":
    main()
