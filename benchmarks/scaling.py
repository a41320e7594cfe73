"""Measure what starting many ranks costs on one node, and what each start asks of file systems.

    python benchmarks/scaling.py [--rounds N] [--ranks 1,2,4,...]

Start-up: wall time until n ranks of /bin/true have exited, in milliseconds, the median over rounds.

    true        a loop of posix_spawn, with the variables of a launcher for each rank, and a wait
    exec        the same loop, which starts `ompbind exec -q -s all -- /bin/true`
    run         ompbind run -q -s all -n N -- /bin/true

`x true` is the median of the ratios within a round, `CPU each` the user and system time per rank in
milliseconds. With -s all, ranks may use all CPUs together, so there can be more ranks than CPUs. `one rank`
compares ompbind in a virtual environment ("venv"), in one file ("zipapp"), and `python -c pass`.

Files: what one start does, from strace. Each row is a group of paths:

    ompbind     the modules of ompbind, or its archive
    python      Python, its libraries, and the virtual environment
    system      other files: libraries of the system, locales
    kernel      /proc and /sys, which are in memory
    registry    the directory of live runs, which is in memory too

`opens` are files and directories that were opened, `failed` are calls with paths that do not exist, `status`
are calls that ask about a path, `paths` are the different paths of all three.

Last, the operations of all ranks of a large job, if nothing is cached: with ompbind and Python on a file
system that all nodes share, and with ompbind alone.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.installation import install, make_zipapp
from benchmarks.launchers import make_environment
from benchmarks.promises import median_ratio
from benchmarks.rounds import make_parser, parse_counts
from benchmarks.timing import Sample
from ompbind.record import Record

COPIED = "/bin/true"
NODES, RANKS = 10_000, 128
"""The large job of the last table."""

GROUPS = ("ompbind", "python", "system", "kernel", "registry")

_CALL = re.compile(
    r'^(?:\d+ +)?(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:\d+<([^>]*)>)?(?:, )?(?:"([^"]*)")?.*= (-?\d+)'
)
_OPENS = ("open", "openat")
_STATUS = ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink")


class Usage(Record):
    """What one start did with a group of paths."""

    opens: int = 0
    failed: int = 0
    status: int = 0
    paths: int = 0
    bytes_read: int = 0

    @property
    def operations(self) -> int:
        """The operations that a server of metadata may see."""
        return self.opens + self.failed + self.status


Usages = dict[str, Usage]
"""What one start did, by group of paths."""


def make_rank_environment(env: dict[str, str], rank: int, size: int) -> dict[str, str]:
    """Return the variables of a rank as MPICH's launcher sets them."""
    numbers = {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size}
    return {**env, **{name: str(number) for name, number in numbers.items()}}


def time_loop(command: Sequence[str], env: dict[str, str], ranks: int) -> Sample:
    """Start a command as each of n ranks, and wait; return the times of all."""
    return time_all(command, [make_rank_environment(env, rank, ranks) for rank in range(ranks)])


def time_all(command: Sequence[str], environments: Sequence[dict[str, str]]) -> Sample:
    """Start a command once in each environment, and wait; return the times of all."""
    begin = time.perf_counter()
    pids = [os.posix_spawn(command[0], command, each) for each in environments]
    exits = [os.wait4(pid, 0) for pid in pids]
    wall_s = time.perf_counter() - begin
    codes = {os.waitstatus_to_exitcode(status) for _, status, _ in exits}
    if codes != {0}:
        raise SystemExit(f"{' '.join(command)} exits with {codes}")
    return Sample(wall_s=wall_s, cpu_s=sum(spent.ru_utime + spent.ru_stime for _, _, spent in exits))


Times = dict[tuple[str, int], list[Sample]]
"""The samples of all rounds, by the name of a start and the number of ranks."""


def measure_starts(start: list[str], env: dict[str, str], options: argparse.Namespace) -> None:
    """Print the times of all numbers of ranks."""
    times: Times = {}
    for _ in range(options.rounds):
        for ranks in options.ranks:
            loops = {"true": [COPIED], "exec": [*start, "exec", *_SHORT, COPIED]}
            for name, command in loops.items():
                times.setdefault((name, ranks), []).append(time_loop(command, env, ranks))
            run = [*start, "run", "-n", str(ranks), *_SHORT, COPIED]
            times.setdefault(("run", ranks), []).append(time_all(run, [env]))
    print(f"{len(os.sched_getaffinity(0))} CPUs, {options.rounds} rounds\n")
    heads = (f" {f'{name} ms':>9} {'x true':>7} {'CPU each':>8}" for name in MEASURED)
    print(f"{'ranks':>5} {'true ms':>8}{''.join(heads)}")
    for ranks in options.ranks:
        print("".join(render_starts(times, ranks)))


MEASURED = ("exec", "run")
_SHORT = ("-q", "-s", "all", "--")


def render_starts(times: Times, ranks: int) -> Iterator[str]:
    """Yield the cells of the row of one number of ranks."""
    floor = [sample.wall_s for sample in times["true", ranks]]
    yield f"{ranks:5} {statistics.median(floor) * 1e3:8.1f}"
    for name in MEASURED:
        walls = [sample.wall_s for sample in times[name, ranks]]
        each_ms = statistics.median(sample.cpu_s for sample in times[name, ranks]) / ranks * 1e3
        yield f" {statistics.median(walls) * 1e3:9.0f} {median_ratio(walls, floor) or 0:7.1f} {each_ms:8.1f}"


def measure_one_rank(starts: dict[str, list[str]], env: dict[str, str], rounds: int) -> None:
    """Print the CPU time of one start of each kind."""
    spent: dict[str, list[float]] = {}
    for _ in range(max(rounds, _FEWEST)):
        for name, start in starts.items():
            spent.setdefault(name, []).append(time_loop(make_command(start), env, 1).cpu_s)
    print("\none rank    CPU ms")
    for name, times in spent.items():
        print(f"{name:10} {statistics.median(times) * 1e3:7.1f}")


_FEWEST = 11


def make_command(start: Sequence[str]) -> list[str]:
    """Return the command of a start: a rank, or Python alone."""
    return [*start] if start[-1] == "pass" else [*start, "exec", *_SHORT, COPIED]


def trace(command: Sequence[str], env: dict[str, str], path: Path) -> list[str]:
    """Return the lines of strace about one start, up to the start of the command of the rank."""
    calls = f"trace={','.join((*_OPENS, *_STATUS, 'read', 'pread64', 'execve'))}"
    subprocess.run(
        ["strace", "-y", "-qq", "-s", "4096", "-e", calls, "-o", str(path), *command], env=env, check=True
    )
    lines = path.read_text(errors="replace").splitlines()
    last = next((i for i, line in enumerate(lines) if line.startswith(f'execve("{COPIED}"')), len(lines))
    return lines[:last]


def group_of(path: str, installation: Sequence[str], registry: str) -> str:
    """Return the group of a path."""
    if path.startswith(("/proc", "/sys")):
        return "kernel"
    if path.startswith(registry):
        return "registry"
    if not path.startswith(tuple(installation)):
        return "system"
    return "ompbind" if "/ompbind" in path else "python"


def count_calls(lines: Sequence[str], installation: Sequence[str], registry: str) -> Usages:
    """Return what the calls of a start did, by group of paths."""
    found: Usages = {}
    paths: dict[str, set[str]] = {}
    for line in lines:
        call = _CALL.match(line)
        if not call:
            continue
        name, opened, given, result = call[1], call[2] or "", call[3] or "", int(call[4])
        path = given if given.startswith("/") else os.path.normpath(f"{opened}/{given}") if given else opened
        if name in ("read", "pread64") and not path.startswith("/"):  # a pipe
            continue
        group = group_of(path, installation, registry)
        usage = found.get(group, Usage())
        if name in ("read", "pread64"):
            found[group] = usage.replace(bytes_read=usage.bytes_read + max(0, result))
            continue
        if name == "newfstatat" and not given:  # of an open file
            continue
        field = "failed" if result < 0 else "opens" if name in (*_OPENS, "execve") else "status"
        found[group] = usage.replace(**{field: getattr(usage, field) + 1})
        paths.setdefault(group, set()).add(path)
    return {group: usage.replace(paths=len(paths.get(group, ()))) for group, usage in found.items()}


def measure_files(starts: dict[str, list[str]], env: dict[str, str], directory: Path) -> dict[str, Usages]:
    """Print what one start does with files, and return it by the name of a start."""
    if not shutil.which("strace"):
        print("\nfiles: left out, no strace on the PATH")
        return {}
    print(
        f"\n{'one rank':8} {'files':9} {'opens':>6} {'failed':>7} {'status':>7} {'paths':>6} {'kB read':>8}"
    )
    found = {}
    environment = make_rank_environment(env, 1, 4)
    for name, start in starts.items():
        command = make_command(start)
        lines = trace(command, environment, directory / "trace")
        prefixes = (str(directory), sys.base_prefix, str(Path(sys.base_prefix).resolve()))
        found[name] = count_calls(lines, prefixes, str(directory / "registry"))
        for group, usage in sorted(found[name].items(), key=lambda pair: GROUPS.index(pair[0])):
            print(f"{name:8} {group:9} {usage.opens:6} {usage.failed:7} {usage.status:7} {usage.paths:6}"
                  f" {usage.bytes_read / 1000:8.0f}")  # fmt: skip
    return found


def print_large_job(found: dict[str, Usages]) -> None:
    """Print the operations of a large job: if all files of Python are shared too, and if only ompbind is."""
    ranks = NODES * RANKS
    print(f"\n{NODES:,} nodes x {RANKS} ranks, millions of operations on a shared file system")
    print(f"{'start':8} {'shared':16} {'operations':>11} {'opens':>7} {'GB read':>9} {'at 100,000/s':>13}")
    for name, usages in found.items():
        for label, groups in (("ompbind, Python", ("ompbind", "python")), ("ompbind", ("ompbind",))):
            shared = [usages[group] for group in groups if group in usages]
            if shared:
                operations = sum(usage.operations for usage in shared) * ranks
                opens = sum(usage.opens for usage in shared) * ranks
                gigabytes = sum(usage.bytes_read for usage in shared) * ranks / 1e9
                print(f"{name:8} {label:16} {operations / 1e6:11,.0f} {opens / 1e6:7,.0f} {gigabytes:9,.0f}"
                      f" {operations / 1e5:11,.0f} s")  # fmt: skip


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--ranks", type=parse_counts, default=(1, 2, 4, 8, 16, 32, 64, 128, 256), metavar="N,..."
    )
    return parser.parse_args()


def main() -> int:
    """Run all measurements."""
    options = read_options()
    with tempfile.TemporaryDirectory(prefix="scaling") as name:
        directory = Path(name).resolve()
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        start = install(directory / "venv")
        python = str(directory / "venv/bin/python")
        zipapp = make_zipapp(directory / "ompbind.pyz", "--compiled", python=python)
        starts = {"python": [python, "-c", "pass"], "venv": start, "zipapp": zipapp}
        (directory / "registry").mkdir()
        env = {**make_environment(directory), "OMPBIND_RUNTIME_DIR": str(directory / "registry")}
        measure_starts(start, env, options)
        measure_one_rank(starts, env, options.rounds)
        print_large_job(measure_files(starts, env, directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
