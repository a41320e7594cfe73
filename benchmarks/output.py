"""How fast output of ranks comes out with tags: ompbind beside other ways to get them.

    python benchmarks/output.py [--rounds N] [--ranks 1,2] [--only NAME,...]

Ranks write lines of 80 bytes, in blocks of 64 KiB (counted in MB/s) or each with a write of its own (counted
in lines per second); of several ranks it is the sum. The time is that from the first byte to the last one
at a reader that throws everything away, so that starting does not count. Every round runs everything once, in
an order that rotates; rates are medians, and so are the ratios of rates within a round. The carriers (NAME):

    ompbind    ompbind run --output tag
    stamped    the same with --timestamps
    inherit    ompbind run, with nothing in between: what the ranks and the reader can do
    openmpi    Open MPI's mpirun --tag-output
    sed        a pipe through sed -u 's/^/[0] /' for each rank

How much is written is found out first, for about a second each. A run that takes longer than --timeout is
killed and counts as hung. The exit code is 1 if a promise that could be measured is missed.
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
from benchmarks.launchers import Missing, find_openmpi
from benchmarks.promises import Promise, tell_promises
from benchmarks.rounds import compile_modules, counts, make_parser
from benchmarks.timing import Hung, kill_session
from ompbind.record import Record

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
LINE = 80
BLOCK = (64 << 10) // LINE * LINE
LEAST_MB_S = 300.0
TIMES_OPENMPI = 2.0

WRITERS = {
    "blocks": f"import os\nb = (b'x' * {LINE - 1} + b'\\n') * {BLOCK // LINE}\n"
    f"for _ in range({{0}} // {BLOCK // LINE}): os.write(1, b)",
    "lines": f"import os\nb = b'x' * {LINE - 1} + b'\\n'\nfor _ in range({{0}}): os.write(1, b)",
}
"""Python programs that write a number of lines, by the way in which they do."""

FIRST = {"blocks": 50_000, "lines": 5_000}
"""Lines that a rank writes to find out how many it should."""

MOST = {"blocks": 20_000_000, "lines": 2_000_000}

Make = Callable[[int, list[str]], list[str]]
"""The command that starts a number of ranks of another one."""

Key = tuple[str, int, str]
"""A carrier, a number of ranks and the way in which they write."""


class Rates(Record):
    """What was measured for a key, in lines per second; `lines` is how many each rank writes."""

    lines: int
    samples: list[float | None]


def make_carriers() -> dict[str, Make]:
    """Return the carriers that are here, by name."""
    tag = [OMPBIND, "run", "-q", "--share", "--output"]
    made: dict[str, Make] = {
        "ompbind": lambda ranks, cmd: [*tag, "tag", "-n", str(ranks), "--", *cmd],
        "stamped": lambda ranks, cmd: [*tag, "tag", "--timestamps", "-n", str(ranks), "--", *cmd],
        "inherit": lambda ranks, cmd: [*tag, "inherit", "-n", str(ranks), "--", *cmd],
    }
    try:
        mpirun = [*find_openmpi(), "--oversubscribe", "--tag-output"]
        made["openmpi"] = lambda ranks, cmd: [*mpirun, "-n", str(ranks), *cmd]
    except Missing as why:
        print(f"openmpi: left out, {why}")
    if shutil.which("sed"):
        made["sed"] = make_sed
    return made


def make_sed(ranks: int, cmd: list[str]) -> list[str]:
    """Return a shell that starts every rank in front of a sed of its own."""
    each = " ".join(f"\"$@\" | sed -u 's/^/[{rank}] /' &" for rank in range(ranks))
    return ["/bin/sh", "-c", f"{each} wait", "sh", *cmd]


def measure(command: list[str], least: int, timeout_s: float) -> float:
    """Run a command, read all it writes and return seconds from the first byte to the last.

    Raises Hung when it takes too long, and ValueError when it wrote less than it should.
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
        raise Hung
    if status or total < least:
        raise ValueError(f"{total} of {least} bytes came out, exit code {status}")
    return spent


def _read(reader: int) -> tuple[int, float]:
    """Read to the end; return how many bytes came, and seconds from the first to the last of them."""
    room = [bytearray(256 << 10)]
    total = os.readv(reader, room)
    begin = end = time.perf_counter()
    while count := os.readv(reader, room):
        total += count
        end = time.perf_counter()
    return total, end - begin


class Bench:
    """Everything that is measured, by key; `out` are those that failed or hung and are left out."""

    def __init__(self, carriers: Mapping[str, Make], timeout_s: float) -> None:
        self.carriers = carriers
        self.timeout_s = timeout_s
        self.rates: dict[Key, Rates] = {}
        self.hangs = 0

    def warm_up(self, key: Key) -> None:
        """Find out how many lines take about a second."""
        rate = self._run(key, FIRST[key[2]])
        if rate is not None:
            lines = max(FIRST[key[2]], min(MOST[key[2]], int(rate / key[1])))
            self.rates[key] = Rates(lines=lines, samples=[])

    def run(self, key: Key) -> None:
        """Measure once."""
        self.rates[key].samples.append(self._run(key, self.rates[key].lines))

    def _run(self, key: Key, lines: int) -> float | None:
        name, ranks, way = key
        lines -= lines % (BLOCK // LINE)
        command = self.carriers[name](ranks, [sys.executable, "-c", WRITERS[way].format(lines)])
        try:
            spent = measure(command, lines * LINE * ranks, self.timeout_s)
        except Hung:
            self.hangs += 1
            print(f"{name} with {ranks} ranks did not end in {self.timeout_s:g} s and was killed")
            return None
        except ValueError as why:
            print(f"{name} with {ranks} ranks: {why}")
            return None
        return lines * ranks / spent


def median_ratio(rates: Mapping[Key, Rates], over: Key, under: Key) -> float | None:
    """Return the median over rounds of how many times faster one is; None where there are no two."""
    if over not in rates or under not in rates:
        return None
    pairs = zip(rates[over].samples, rates[under].samples, strict=True)
    found = [a / b for a, b in pairs if a is not None and b is not None]
    return statistics.median(found) if found else None


def median_rate(rates: Mapping[Key, Rates], key: Key) -> float | None:
    """Return the median rate in lines per second; None without any."""
    found = [one for one in rates[key].samples if one is not None] if key in rates else []
    return statistics.median(found) if found else None


def render_rate(rate: float | None, way: str) -> str:
    """Return a rate in the unit of a way to write."""
    if rate is None:
        return "-"
    return f"{rate * LINE / 1e6:.0f} MB/s" if way == "blocks" else f"{rate:,.0f} lines/s"


def tell_rates(bench: Bench, ranks: tuple[int, ...]) -> None:
    """Print a table for each number of ranks."""
    for count in ranks:
        print(f"\n{count} rank{'s' * (count > 1)}")
        for name in bench.carriers:
            cells = []
            for way in WRITERS:
                ratio = median_ratio(bench.rates, ("ompbind", count, way), (name, count, way))
                cells.append(render_rate(median_rate(bench.rates, (name, count, way)), way))
                cells.append("-" if ratio is None else f"{ratio:.2f}")
            print(f"{name:9} {cells[0]:>11} (ompbind is {cells[1]:>6} x)  "
                  f"{cells[2]:>18} (ompbind is {cells[3]:>6} x)")  # fmt: skip


def judge(rates: Mapping[Key, Rates], ranks: tuple[int, ...]) -> list[Promise]:
    """Return what is promised of tags, as times: so that less is better."""
    promises = []
    for count in ranks:
        who = f"{count} rank{'s' * (count > 1)}"
        ours = ("ompbind", count, "blocks")
        rate, ratio = median_rate(rates, ours), median_ratio(rates, ours, ("openmpi", count, "blocks"))
        promises += [
            Promise(text=f"{who}, tags, for each MB", limit=round(1000 / LEAST_MB_S, 2),
                    measured=rate and 1e9 / (rate * LINE), unit="ms"),
            Promise(text=f"{who}, tags, time, of openmpi's", limit=1 / TIMES_OPENMPI,
                    measured=ratio and 1 / ratio),
        ]  # fmt: skip
    return promises


def read_options(names: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=counts, default=(1, 2), metavar="N,...")
    parser.add_argument("--only", metavar="NAME,...", help="measure only these carriers")
    parser.add_argument("--timeout", type=float, default=20.0, metavar="SECONDS")
    options = parser.parse_args()
    options.only = tuple(options.only.split(",")) if options.only else tuple(names)
    return options


def main() -> int:
    """Measure everything; tell whether the promises are kept."""
    carriers = make_carriers()
    options = read_options(list(carriers))
    compile_modules()
    bench = Bench({name: carriers[name] for name in carriers if name in options.only}, options.timeout)
    keys = [(name, ranks, way) for ranks in options.ranks for way in WRITERS for name in bench.carriers]
    for key in keys:
        bench.warm_up(key)
    keys = [key for key in keys if key in bench.rates]
    for number in range(options.rounds):
        turn = number % len(keys)
        for key in keys[turn:] + keys[:turn]:
            bench.run(key)
    tell_rates(bench, options.ranks)
    return tell_promises(judge(bench.rates, options.ranks))


if __name__ == "__main__":
    sys.exit(main())
