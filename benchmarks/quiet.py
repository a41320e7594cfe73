"""Measure memory, wake-ups and CPU time of ompbind itself while ranks sleep.

    python benchmarks/quiet.py [--seconds S] [--ranks 1,2,64,256]

For each number of ranks, this starts `ompbind run --share -n N -- sleep`. ompbind's own processes are the
started process and its descendants that run the same Python. When all ranks sleep, it reads from /proc:

    memory     resident memory of the largest process; sums of resident and of proportional memory (pages that
               several processes share count once); 1 MB is 1,000,000 bytes
    wake-ups   voluntary and involuntary context switches of all threads, in S seconds; must be 0
    ticks      CPU time in ticks of the kernel, in S seconds; must be 0

The last line is about a run of two ranks with --verify: the CPU time of its samples in percent of a CPU, from
ten seconds after its start on, in 3 S seconds; must be at most 0.1.

The memory of a further rank is the difference of resident memory between 256 and 64 ranks, per rank. The exit
code is 1 if a promise is missed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.promises import IdleUsage, make_quiet_promises, print_promises
from benchmarks.rounds import compile_modules, make_parser, parse_counts
from benchmarks.timing import read_processes

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
START_S = 60.0
VERIFY_START_S = 10.0
"""Seconds after which --verify has reported its first result, and samples are rare."""

WAIT_S = 1.0
"""Seconds to wait after the start of the last rank, so that ompbind finishes the start."""


@contextmanager
def running(ranks: int, directory: str, *options: str) -> Iterator[int]:
    """Start ranks that sleep; yield the pid of ompbind, and stop it afterwards."""
    env = {**os.environ, "OMPBIND_RUNTIME_DIR": directory}
    command = [OMPBIND, "run", "-q", "--share", *options, "-n", str(ranks), "--", "sleep", "86400"]
    launcher = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        yield launcher.pid
    finally:
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(START_S)


def read_descendants(pid: int) -> list[int]:
    """Return a process and its descendants, parents first."""
    parents = {child: int(fields[1]) for child, fields in read_processes()}
    tree = [pid]
    for process in tree:
        tree.extend(child for child, parent in parents.items() if parent == process)
    return tree


def read_program(pid: int) -> str:
    """Return the executable file of a process; empty if the process has exited."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def find_own_processes(launcher: int, ranks: int) -> list[int]:
    """Wait until all ranks run the command; return ompbind's own processes."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        programs = {pid: read_program(pid) for pid in read_descendants(launcher)}
        own = [pid for pid, program in programs.items() if program == programs[launcher]]
        if not programs[launcher]:
            raise SystemExit(f"ompbind exited instead of running {ranks} ranks")
        if len(programs) - len(own) == ranks:
            return own
        time.sleep(0.05)
    raise SystemExit(f"{ranks} ranks have not started after {START_S:g} s")


def read_memory(pid: int) -> tuple[int, int]:
    """Return the resident and the proportional memory of a process in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", text, re.MULTILINE))
    return int(kib["Rss"]) * 1024, int(kib["Pss"]) * 1024


def read_activity(pids: Sequence[int]) -> tuple[int, int]:
    """Return the context switches and the CPU time in ticks so far, of all threads of these processes."""
    switches = ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            switches += sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", status.read_text())))
    return switches, ticks


def measure(ranks: int, seconds: float, directory: str, *options: str) -> IdleUsage:
    """Start ranks, and measure ompbind while they sleep."""
    with running(ranks, directory, *options) as launcher:
        own = find_own_processes(launcher, ranks)
        time.sleep(WAIT_S)
        before = read_activity(own)
        time.sleep(seconds)
        after = read_activity(own)
        memory = [read_memory(pid) for pid in own]
        if find_own_processes(launcher, ranks) != own:
            raise SystemExit("ompbind's processes changed during the measurement")
    return IdleUsage(
        ranks=ranks,
        processes=len(own),
        largest=max(rss for rss, _ in memory),
        rss=sum(rss for rss, _ in memory),
        pss=sum(pss for _, pss in memory),
        switches=after[0] - before[0],
        ticks=after[1] - before[1],
    )


def read_cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU time so far of processes with one thread, in seconds, more exact than ticks."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


def measure_verify(seconds: float, directory: str) -> float:
    """Return the percentage of a CPU that a verified run of sleeping ranks uses, once it has started."""
    with running(2, directory, "--verify") as launcher:
        own = find_own_processes(launcher, 2)
        time.sleep(VERIFY_START_S)
        before = read_cpu_s(own)
        time.sleep(seconds)
        return 100 * (read_cpu_s(own) - before) / seconds


def render_usage(usage: IdleUsage) -> str:
    """Return the table row of one number of ranks."""
    memory = "".join(f"{size / 1e6:12.1f}" for size in (usage.largest, usage.rss, usage.pss))
    return f"{usage.ranks:5} {usage.processes:10}{memory} {usage.switches:11} {usage.ticks:9}"


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ranks", type=parse_counts, default=(1, 2, 64, 256), metavar="N,...")
    return parser.parse_args()


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    options = read_options()
    compile_modules()
    print(f"ompbind's own processes while ranks sleep; wake-ups and ticks during {options.seconds:g} s")
    print("ranks  processes  largest MB  all RSS MB  all PSS MB    wake-ups     ticks")
    measured = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="quiet") as directory:
            measured.append(measure(ranks, options.seconds, directory))
        print(render_usage(measured[-1]), flush=True)
    with tempfile.TemporaryDirectory(prefix="quiet") as directory:
        verify_percent = measure_verify(3 * options.seconds, directory)
    return print_promises(make_quiet_promises(measured, verify_percent))


if __name__ == "__main__":
    sys.exit(main())
