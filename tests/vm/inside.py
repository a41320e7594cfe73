"""What runs inside a virtual machine: look, bind, disturb, and print all that was seen as one JSON object.

Nothing is judged here; the tests outside compare what the kernel, lscpu, hwloc and ompbind say. Only the
standard library is used. The one argument is the order as JSON, options of ompbind are one text each in it:
lists `placed`, `remembered` and `refused` of options, a list `held` of [options, changes], and `toggled`,
null or [file, texts to write into it, options, runs].
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
PATIENCE_S = 60
"""Emulated CPUs are slow, but a command of ompbind that takes this long hangs."""

KERNEL = """
devices/system/cpu/online devices/system/cpu/offline devices/system/cpu/isolated devices/system/cpu/nohz_full
devices/system/cpu/cpu*/topology/*_cpus_list devices/system/cpu/cpu*/cache/index*/level
devices/system/cpu/cpu*/cache/index*/shared_cpu_list devices/system/node/node*/cpulist
devices/system/node/node*/distance devices/system/node/node*/meminfo
"""
SHOW = 'exec cat /proc/self/environ /proc/self/status /proc/self/numa_maps >"$0/$OMPBIND_RANK"'
"""A rank: writes down its environment, status and memory, in a file of its own so that lines never mix."""

INHERITED = {**os.environ, "GOMP_CPU_AFFINITY": "0"}
"""One variable that every plan clears: ranks must not see it, and each run has something to say about it."""


def main():
    order = json.loads(sys.argv[1])
    seen = {
        "kernel": read_kernel(),
        "allowed": source(Path("/proc/self/status").read_text(), "Cpus_allowed_list"),
        # -p, not -J: with CPUs offline, util-linux 2.38 writes what is no JSON
        "lscpu": output("lscpu", "--online", "-p=CPU,NODE,SOCKET,CORE"),
        "topo": output(OMPBIND, "topo", "--format", "json"),
        "placed": {options: place(options) for options in order["placed"]},
        "remembered": {options: bind(options) for options in order["remembered"]},
        "refused": {options: bind(options) for options in order["refused"]},
        "held": [hold(options, changes) for options, changes in order["held"]],
        "toggled": toggle(*order["toggled"]) if order["toggled"] else [],
    }
    if shutil.which("lstopo-no-graphics"):
        # --disallowed: all that is online, not only what a cpuset leaves
        seen["hwloc"] = output("lstopo-no-graphics", "--no-io", "--disallowed", "--of", "xml")
    print(json.dumps(seen))


def read_kernel():
    sys_ = Path("/sys")
    return {str(path): path.read_text() for pattern in KERNEL.split() for path in sys_.glob(pattern)}


def source(status, key):
    return next(line.split(":")[1].strip() for line in status.splitlines() if line.startswith(f"{key}:"))


def output(*command):
    done = finish(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def finish(command):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=INHERITED, stdin=subprocess.DEVNULL
    )


def place(options):
    """Plan with some options, and run with the same."""
    plan = finish([*make_command("plan", options), "--format", "json"])
    return {"plan": {"code": plan.returncode, "out": plan.stdout, "said": plan.stderr}, "run": bind(options)}


def bind(options):
    """Run ranks that write down what they are."""
    with tempfile.TemporaryDirectory() as folder:
        done = finish([*run_command(options), folder])
        return {"code": done.returncode, "said": done.stderr, "ranks": read_ranks(folder)}


def run_command(options):
    return [*make_command("run", options), "--", "sh", "-c", SHOW]


def make_command(verb, options):
    """A command in front, up to a colon, starts ompbind."""
    before, _, own = options.rpartition(" : ")
    return [*shlex.split(before), OMPBIND, verb, "--run-id", "vm", *shlex.split(own)]


def read_ranks(folder):
    """What ranks have written; those that were stopped in the midst of it say nothing."""
    ranks = {}
    for path in Path(folder).iterdir():
        environ, _, status = path.read_text(errors="surrogateescape").rpartition("\0")
        if "Cpus_allowed_list" not in status:
            continue
        env = dict(item.split("=", 1) for item in environ.split("\0"))
        memory = [line.split(" ", 1)[1] for line in status.splitlines() if " stack " in line]
        ranks[path.name] = {"env": env, "allowed": source(status, "Cpus_allowed_list"), "memory": memory}
    return ranks


def hold(options, changes):
    """Run ranks, and change the machine at the one moment that matters: planned, but not yet bound.

    Before it starts ranks, ompbind says which variable it clears. A full pipe as standard error holds it
    there until somebody reads. `changes` is path → [what to write then, what to write afterwards].
    """
    reader, writer = os.pipe()
    os.write(writer, bytes(fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)))
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [*run_command(options), folder], stderr=writer, stdin=subprocess.DEVNULL, env=INHERITED
        )
        os.close(writer)
        held = waits_in_a_pipe(process)
        for path, (then, _) in changes.items():
            Path(path).write_text(then)
        with open(reader) as pipe:
            said = pipe.read().lstrip("\0")
        code = process.wait(PATIENCE_S)
        for path, (_, afterwards) in changes.items():
            Path(path).write_text(afterwards)
        return {"held": held, "code": code, "said": said, "ranks": read_ranks(folder)}


def waits_in_a_pipe(process):
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if Path(f"/proc/{process.pid}/wchan").read_text().startswith("pipe"):
            return True
        time.sleep(0.02)
    return False


def toggle(path, texts, options, runs):
    """Run ranks again and again while the machine changes, and at last is as it was."""
    over = threading.Event()
    toggler = threading.Thread(target=go_and_come, args=(Path(path), texts, over))
    toggler.start()
    try:
        return [bind(options) for _ in range(runs)]
    finally:
        over.set()
        toggler.join()


def go_and_come(path, texts, over):
    """The pauses differ, so that changes meet every moment of a run."""
    pauses = itertools.cycle((0.3, 0.05, 0.17, 0.02, 0.4, 0.11, 0.23))
    while not over.is_set():
        for text in texts:
            path.write_text(text)
            over.wait(next(pauses))


if __name__ == "__main__":
    main()
