"""Measure how fast tagged output of ranks is forwarded: ompbind compared with other methods.

    python benchmarks/output.py [--rounds N] [--ranks 1,2] [--only NAME,...]

Ranks write lines of 80 bytes: in blocks of 64 KiB (measured in MB/s), or with one write per line (measured in
lines per second). With several ranks, rates are sums. The time is from the first to the last byte at a reader
that discards everything, so starting is not measured. Each round runs every method once, in rotating order.
Rates are medians, and so are ratios within a round. The methods (NAME):

    ompbind    ompbind run --output tag
    stamped    the same with --timestamps
    inherit    ompbind run without forwarding: the limit of ranks and reader
    openmpi    Open MPI's mpirun --tag-output
    sed        a pipe through sed -u 's/^/[0] /' per rank

A first run finds how many lines take about a second. A run that takes longer than --timeout is killed. The
exit code is 1 if a measured promise is missed.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.launchers import Unavailable, find_openmpi
from benchmarks.promises import Promise, print_promises
from benchmarks.rounds import compile_modules, make_parser, parse_counts
from benchmarks.timing import TimedOut, kill_session
from ompbind.record import Record

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
LINE = 80
BLOCK = (64 << 10) // LINE * LINE
MIN_MB_S = 300.0
MIN_OPENMPI_RATIO = 2.0

WRITERS = {
    "blocks": f"import os\nb = (b'x' * {LINE - 1} + b'\\n') * {BLOCK // LINE}\n"
    f"for _ in range({{0}} // {BLOCK // LINE}): os.write(1, b)",
    "lines": f"import os\nb = b'x' * {LINE - 1} + b'\\n'\nfor _ in range({{0}}): os.write(1, b)",
}
"""Python programs that write a number of lines, by write mode."""

PROBE_LINES = {"blocks": 50_000, "lines": 5_000}
"""Lines per rank in the first run."""

MAX_LINES = {"blocks": 20_000_000, "lines": 2_000_000}

Make = Callable[[int, list[str]], list[str]]
"""Returns the command that starts a number of ranks of another command."""

Key = tuple[str, int, str]
"""A method, a number of ranks, and a write mode."""


class Rates(Record):
    """Rates of a key in lines per second, one per round; `lines` is the number of lines per rank."""

    lines: int
    samples: list[float | None]


def make_methods() -> dict[str, Make]:
    """Return the methods that are available, by name."""
    tag = [OMPBIND, "run", "-q", "--share", "--output"]
    made: dict[str, Make] = {
        "ompbind": lambda ranks, cmd: [*tag, "tag", "-n", str(ranks), "--", *cmd],
        "stamped": lambda ranks, cmd: [*tag, "tag", "--timestamps", "-n", str(ranks), "--", *cmd],
        "inherit": lambda ranks, cmd: [*tag, "inherit", "-n", str(ranks), "--", *cmd],
    }
    try:
        mpirun = [*find_openmpi(), "--oversubscribe", "--tag-output"]
        made["openmpi"] = lambda ranks, cmd: [*mpirun, "-n", str(ranks), *cmd]
    except Unavailable as why:
        print(f"openmpi: left out, {why}")
    if shutil.which("sed"):
        made["sed"] = make_sed
    return made


def make_sed(ranks: int, cmd: list[str]) -> list[str]:
    """Return a shell command that starts each rank with a pipe to its own sed."""
    each = " ".join(f"\"$@\" | sed -u 's/^/[{rank}] /' &" for rank in range(ranks))
    return ["/bin/sh", "-c", f"{each} wait", "sh", *cmd]


def measure(command: list[str], least: int, timeout_s: float) -> float:
    """Run a command, read its output, and return the seconds from the first to the last byte.

    Raises TimedOut if it takes too long, ValueError if it writes fewer than `least` bytes.
    """
    reader, writer = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
    ]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: kill_session(pid))
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        total, spent = _read(reader)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == -signal.SIGKILL:
        raise TimedOut
    if status or total < least:
        raise ValueError(f"{total} of {least} bytes arrived, exit code {status}")
    return spent


def _read(reader: int) -> tuple[int, float]:
    """Read to the end; return the number of bytes, and the seconds from the first to the last byte."""
    buffer = [bytearray(256 << 10)]
    total = os.readv(reader, buffer)
    begin = end = time.perf_counter()
    while count := os.readv(reader, buffer):
        total += count
        end = time.perf_counter()
    return total, end - begin


class Bench:
    """Results of one run of this benchmark: the rates by key, and the number of killed runs."""

    def __init__(self, methods: Mapping[str, Make], timeout_s: float) -> None:
        self.methods = methods
        self.timeout_s = timeout_s
        self.rates: dict[Key, Rates] = {}
        self.hangs = 0

    def warm_up(self, key: Key) -> None:
        """Find how many lines take about a second."""
        rate = self._run(key, PROBE_LINES[key[2]])
        if rate is not None:
            lines = max(PROBE_LINES[key[2]], min(MAX_LINES[key[2]], int(rate / key[1])))
            self.rates[key] = Rates(lines=lines, samples=[])

    def run(self, key: Key) -> None:
        """Measure once."""
        self.rates[key].samples.append(self._run(key, self.rates[key].lines))

    def _run(self, key: Key, lines: int) -> float | None:
        name, ranks, write_mode = key
        lines -= lines % (BLOCK // LINE)
        command = self.methods[name](ranks, [sys.executable, "-c", WRITERS[write_mode].format(lines)])
        try:
            spent = measure(command, lines * LINE * ranks, self.timeout_s)
        except TimedOut:
            self.hangs += 1
            print(f"{name} with {ranks} ranks did not exit in {self.timeout_s:g} s and was killed")
            return None
        except ValueError as why:
            print(f"{name} with {ranks} ranks: {why}")
            return None
        return lines * ranks / spent


def median_ratio(rates: Mapping[Key, Rates], over: Key, under: Key) -> float | None:
    """Return the median ratio of two rates over the rounds that have both; None if there are none."""
    if over not in rates or under not in rates:
        return None
    pairs = zip(rates[over].samples, rates[under].samples, strict=True)
    ratios = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(ratios) if ratios else None


def median_rate(rates: Mapping[Key, Rates], key: Key) -> float | None:
    """Return the median rate in lines per second; None if there is no rate."""
    samples = [rate for rate in rates[key].samples if rate is not None] if key in rates else []
    return statistics.median(samples) if samples else None


def render_rate(rate: float | None, write_mode: str) -> str:
    """Return a rate as text, in the unit of the write mode."""
    if rate is None:
        return "-"
    return f"{rate * LINE / 1e6:.0f} MB/s" if write_mode == "blocks" else f"{rate:,.0f} lines/s"


def print_rates(bench: Bench, ranks: tuple[int, ...]) -> None:
    """Print a table for each number of ranks."""
    for count in ranks:
        print(f"\n{count} rank{'s' * (count > 1)}")
        for name in bench.methods:
            cells = []
            for write_mode in WRITERS:
                ratio = median_ratio(bench.rates, ("ompbind", count, write_mode), (name, count, write_mode))
                cells.append(render_rate(median_rate(bench.rates, (name, count, write_mode)), write_mode))
                cells.append("-" if ratio is None else f"{ratio:.2f}")
            print(f"{name:9} {cells[0]:>11} (ompbind is {cells[1]:>6} x)  "
                  f"{cells[2]:>18} (ompbind is {cells[3]:>6} x)")  # fmt: skip


def make_output_promises(rates: Mapping[Key, Rates], ranks: tuple[int, ...]) -> list[Promise]:
    """Return the promises about tags, as times, so that lower is better."""
    promises = []
    for count in ranks:
        title = f"{count} rank{'s' * (count > 1)}"
        ompbind_key = ("ompbind", count, "blocks")
        rate, ratio = (
            median_rate(rates, ompbind_key),
            median_ratio(rates, ompbind_key, ("openmpi", count, "blocks")),
        )
        promises += [
            Promise(text=f"{title}, tags, for each MB", limit=round(1000 / MIN_MB_S, 2),
                    measured=rate and 1e9 / (rate * LINE), unit="ms"),
            Promise(text=f"{title}, tags, time, of openmpi's", limit=1 / MIN_OPENMPI_RATIO,
                    measured=ratio and 1 / ratio),
        ]  # fmt: skip
    return promises


def read_options(names: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=parse_counts, default=(1, 2), metavar="N,...")
    parser.add_argument("--only", metavar="NAME,...", help="measure only these methods")
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS")
    options = parser.parse_args()
    options.only = tuple(options.only.split(",")) if options.only else tuple(names)
    return options


def main() -> int:
    """Run all measurements; return 1 if a promise is missed."""
    methods = make_methods()
    options = read_options(list(methods))
    compile_modules()
    bench = Bench({name: methods[name] for name in methods if name in options.only}, options.timeout)
    keys = [
        (name, ranks, write_mode)
        for ranks in options.ranks
        for write_mode in WRITERS
        for name in bench.methods
    ]
    for key in keys:
        bench.warm_up(key)
    keys = [key for key in keys if key in bench.rates]
    for number in range(options.rounds):
        turn = number % len(keys)
        for key in keys[turn:] + keys[:turn]:
            bench.run(key)
    print_rates(bench, options.ranks)
    return print_promises(make_output_promises(bench.rates, options.ranks))


if __name__ == "__main__":
    sys.exit(main())
