"""Runs inside a virtual machine: reads the machine, runs ompbind, and prints all results as one JSON object.

Nothing is checked here: the tests outside compare the kernel, lscpu, hwloc and ompbind. Only the standard
library is used. The argument is the task as JSON, with options of ompbind as one text each: lists `placed`,
`memory_policies` and `refused` of options, a list `paused` of [options, changes], `toggled`, null or [file,
texts to write into it, options, number of runs], and `throttled`, null or [file, two texts to write into it].
"""

import fcntl
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
TIMEOUT_S = 60
"""Emulated CPUs are slow, but a command of ompbind that takes this long hangs."""

KERNEL = """
devices/system/cpu/online devices/system/cpu/offline devices/system/cpu/isolated devices/system/cpu/nohz_full
devices/system/cpu/cpu*/topology/*_cpus_list devices/system/cpu/cpu*/cache/index*/level
devices/system/cpu/cpu*/cache/index*/shared_cpu_list devices/system/node/node*/cpulist
devices/system/node/node*/distance devices/system/node/node*/meminfo
"""
SHOW = 'exec cat /proc/self/environ /proc/self/status /proc/self/numa_maps >"$0/$OMPBIND_RANK"'
"""A rank writes its environment, status and memory to its own file, so that lines never mix."""

BUSY = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"

INHERITED = {**os.environ, "GOMP_CPU_AFFINITY": "0"}
"""Every plan clears GOMP_CPU_AFFINITY: ranks must not have it, and each run prints a note about it."""


def main():
    task = json.loads(sys.argv[1])
    results = {
        "kernel": read_kernel(),
        "allowed": status_value(Path("/proc/self/status").read_text(), "Cpus_allowed_list"),
        # -p, not -J: with CPUs offline, util-linux 2.38 writes invalid JSON
        "lscpu": output("lscpu", "--online", "-p=CPU,NODE,SOCKET,CORE"),
        "topo": output(OMPBIND, "topo", "--format", "json"),
        "placed": {options: place(options) for options in task["placed"]},
        "memory_policies": {options: bind(options) for options in task["memory_policies"]},
        "refused": {options: bind(options) for options in task["refused"]},
        "paused": [run_paused(options, changes) for options, changes in task["paused"]],
        "toggled": toggle(*task["toggled"]) if task["toggled"] else [],
        "throttled": throttle(*task["throttled"]) if task["throttled"] else None,
    }
    if shutil.which("lstopo-no-graphics"):
        # --disallowed: all online CPUs, also outside of the cpuset
        results["hwloc"] = output("lstopo-no-graphics", "--no-io", "--disallowed", "--of", "xml")
    print(json.dumps(results))


def read_kernel():
    sys_ = Path("/sys")
    return {str(path): path.read_text() for pattern in KERNEL.split() for path in sys_.glob(pattern)}


def status_value(status, key):
    return next(line.split(":")[1].strip() for line in status.splitlines() if line.startswith(f"{key}:"))


def output(*command):
    done = finish(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def finish(command):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=INHERITED, stdin=subprocess.DEVNULL
    )


def place(options):
    """Make a plan with some options, and run with the same options."""
    plan = finish([*make_command("plan", options), "--format", "json"])
    return {"plan": {"code": plan.returncode, "out": plan.stdout, "err": plan.stderr}, "run": bind(options)}


def bind(options):
    """Run ranks that write their affinity mask, environment and memory."""
    with tempfile.TemporaryDirectory() as directory:
        done = finish([*run_command(options), directory])
        return {"code": done.returncode, "err": done.stderr, "ranks": read_ranks(directory)}


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
        env = dict(item.split("=", 1) for item in environ.split("\0"))
        memory = [line.split(" ", 1)[1] for line in status.splitlines() if " stack " in line]
        ranks[path.name] = {
            "env": env,
            "allowed": status_value(status, "Cpus_allowed_list"),
            "memory": memory,
        }
    return ranks


def run_paused(options, changes):
    """Run ranks, and change the machine after planning and before binding.

    Before it starts ranks, ompbind prints which variable it clears. Standard error is a full pipe, so this
    blocks until the pipe is read. `changes` is path → [text to write then, text to write afterwards].
    """
    reader, writer = os.pipe()
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)))
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            [*run_command(options), directory], stderr=writer, stdin=subprocess.DEVNULL, env=INHERITED
        )
        os.close(writer)
        paused = waits_for_pipe(process)
        for path, (then, _) in changes.items():
            Path(path).write_text(then)
        with open(reader) as pipe:
            err = pipe.read().lstrip("\0")
        code = process.wait(TIMEOUT_S)
        for path, (_, afterwards) in changes.items():
            Path(path).write_text(afterwards)
        return {"paused": paused, "code": code, "err": err, "ranks": read_ranks(directory)}


def waits_for_pipe(process):
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if Path(f"/proc/{process.pid}/wchan").read_text().startswith("pipe"):
            return True
        time.sleep(0.02)
    return False


def toggle(path, texts, options, runs):
    """Run ranks repeatedly while a file of the machine changes; in the end it has its first state again."""
    done = threading.Event()
    toggler = threading.Thread(target=toggle_file, args=(Path(path), texts, done))
    toggler.start()
    try:
        return [bind(options) for _ in range(runs)]
    finally:
        done.set()
        toggler.join()


def throttle(path, texts):
    """Run a busy rank while a file limits its CPU time, and return its messages and its report."""
    then, afterwards = texts
    Path(path).write_text(then)
    try:
        done = finish([OMPBIND, "run", "--report", "-", "--", "sh", "-c", BUSY])
    finally:
        Path(path).write_text(afterwards)
    return {"err": done.stderr, "report": done.stdout}


def toggle_file(path, texts, done):
    """Write the texts in turn. The pauses differ, so that changes happen at any moment of a run."""
    pauses = itertools.cycle((0.3, 0.05, 0.17, 0.02, 0.4, 0.11, 0.23))
    while not done.is_set():
        for text in texts:
            path.write_text(text)
            done.wait(next(pauses))


if __name__ == "__main__":
    main()
