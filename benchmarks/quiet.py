"""What ompbind itself takes while its ranks run and nothing happens: memory, wake-ups and CPU time.

    python benchmarks/quiet.py [--seconds S] [--ranks 1,2,64,256]

For each number of ranks, `ompbind run --share -n N -- sleep` is started; its own processes are the one that
was started and all below it that run the same Python. Once every rank sleeps, their memory is read from
/proc: the resident memory of the largest, and the sums of resident and of proportional memory (where pages
that several processes share count once; MB are 1,000,000 bytes). Then, over a quiet window of S seconds, how
often the kernel gave one of them a CPU (voluntary and involuntary context switches of all threads) and their
CPU time in ticks: both must not change at all. What a further rank takes is the difference of resident
memory between 256 and 64 ranks. The exit code is 1 if a promise is missed.
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
from benchmarks.promises import Quiet, judge_quiet, tell_promises
from benchmarks.rounds import compile_modules, counts, make_parser
from benchmarks.timing import read_processes

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
START_S = 60.0
SETTLE_S = 1.0
"""Seconds after the last rank has started, for what is left to be done after it."""


@contextmanager
def running(ranks: int, folder: str) -> Iterator[int]:
    """Start ranks that sleep; yield the pid of ompbind, and end it afterwards."""
    env = {**os.environ, "OMPBIND_RUNTIME_DIR": folder}
    command = [OMPBIND, "run", "-q", "--share", "-n", str(ranks), "--", "sleep", "86400"]
    launcher = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        yield launcher.pid
    finally:
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(START_S)


def read_below(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    parents = {child: int(fields[1]) for child, fields in read_processes()}
    found = [pid]
    for one in found:
        found.extend(child for child, parent in parents.items() if parent == one)
    return found


def read_program(pid: int) -> str:
    """Return the file that a process runs; nothing for one that has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def find_own(launcher: int, ranks: int) -> list[int]:
    """Return ompbind's own processes, as soon as all ranks run the command."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        programs = {pid: read_program(pid) for pid in read_below(launcher)}
        own = [pid for pid, program in programs.items() if program == programs[launcher]]
        if not programs[launcher]:
            raise SystemExit(f"ompbind has ended instead of running {ranks} ranks")
        if len(programs) - len(own) == ranks:
            return own
        time.sleep(0.05)
    raise SystemExit(f"{ranks} ranks do not run after {START_S:g} s")


def read_memory(pid: int) -> tuple[int, int]:
    """Return the resident and the proportional memory of a process in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", text, re.MULTILINE))
    return int(kib["Rss"]) * 1024, int(kib["Pss"]) * 1024


def read_activity(pids: Sequence[int]) -> tuple[int, int]:
    """Return the context switches and the ticks of CPU time of processes so far, of all their threads."""
    switches = ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for status in Path(f"/proc/{pid}/task").glob("*/status"):
            switches += sum(map(int, re.findall(r"ctxt_switches:\s*(\d+)", status.read_text())))
    return switches, ticks


def measure(ranks: int, seconds: float, folder: str) -> Quiet:
    """Start ranks and look at ompbind while they sleep."""
    with running(ranks, folder) as launcher:
        own = find_own(launcher, ranks)
        time.sleep(SETTLE_S)
        before = read_activity(own)
        time.sleep(seconds)
        after = read_activity(own)
        memory = [read_memory(pid) for pid in own]
        if find_own(launcher, ranks) != own:
            raise SystemExit("ompbind's processes are others than before")
    return Quiet(
        ranks=ranks,
        processes=len(own),
        largest=max(rss for rss, _ in memory),
        rss=sum(rss for rss, _ in memory),
        pss=sum(pss for _, pss in memory),
        switches=after[0] - before[0],
        ticks=after[1] - before[1],
    )


def render_quiet(one: Quiet) -> str:
    """Return the line of one number of ranks."""
    memory = "".join(f"{size / 1e6:12.1f}" for size in (one.largest, one.rss, one.pss))
    return f"{one.ranks:5} {one.processes:10}{memory} {one.switches:11} {one.ticks:9}"


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--ranks", type=counts, default=(1, 2, 64, 256), metavar="N,...")
    return parser.parse_args()


def main() -> int:
    """Measure everything; tell whether the promises are kept."""
    options = read_options()
    compile_modules()
    print(f"ompbind's own processes while ranks sleep; wake-ups and ticks in {options.seconds:g} s")
    print("ranks  processes  largest MB  all RSS MB  all PSS MB    wake-ups     ticks")
    measured = []
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="quiet") as folder:
            measured.append(measure(ranks, options.seconds, folder))
        print(render_quiet(measured[-1]), flush=True)
    return tell_promises(judge_quiet(measured))


if __name__ == "__main__":
    sys.exit(main())
