"""The summary of a finished run: hints, failures, and the resources that ranks used."""

import re
import subprocess
import sys
from pathlib import Path
from signal import Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.execution.outcome import (
    FAILURE_HINTS,
    OUT_OF_MEMORY,
    Outcome,
    RankExit,
    Usage,
    find_hint,
    render_exit,
)
from ompbind.machine.sources.linux.cgroup import Throttling
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.run_summary import (
    LAST_LINES,
    LINE_LIMIT,
    render_failures,
    render_throttling,
    render_usage_table,
)
from ompbind.report.text import WIDTH
from tests.machines import Shape, make_machine

PLAN = make_plan(make_machine(Shape(cores=8)), Request(ranks=4))
"""Four ranks of two CPUs."""


def coded(rank, code, **more):
    return RankExit(rank=rank, pid=100 + rank, code=code, **more)


def killed(rank, number, **more):
    return RankExit(rank=rank, pid=100 + rank, code=None, signal=number, **more)


def outcome(*exits, **more):
    return Outcome(exits=exits, **more)


@pytest.mark.parametrize(
    ("exited", "oom_kills", "words"),
    [
        (coded(0, 0), 1, ""),
        (coded(0, 1), 0, ""),
        (coded(0, 1), 1, OUT_OF_MEMORY),
        (coded(0, 126), 0, "a command was found but"),
        (coded(0, 127), 0, "PATH"),
        (coded(0, 127), 1, "PATH"),
        (killed(0, 9), 0, "not sent by ompbind"),
        (killed(0, 9), 2, OUT_OF_MEMORY),
        (killed(0, 9, stopped=True), 1, ""),
        (coded(0, 137), 0, "exit code 137 of a shell means SIGKILL: not sent by ompbind"),
        (coded(0, 137), 1, f"exit code 137 of a shell means SIGKILL: {OUT_OF_MEMORY}"),
        (killed(0, 4), 0, "this CPU does not support an instruction"),
        (killed(0, 11), 0, "OMP_STACKSIZE"),
        (coded(0, 139), 0, "exit code 139 of a shell means SIGSEGV: with OpenMP"),
        (killed(0, Signals.SIGBUS), 0, "shared memory"),
        (killed(0, Signals.SIGXCPU), 0, "CPU time"),
        (killed(0, Signals.SIGXFSZ), 0, "file size"),
        (killed(0, Signals.SIGSYS), 0, "system call"),
        *((end, 0, "") for end in (killed(0, 15), killed(0, 6), killed(0, 37), coded(0, 255), coded(0, 128))),
    ],
)
def test_hints_name_the_usual_cause_of_a_status(exited, oom_kills, words):
    hint = find_hint(exited, outcome(exited, oom_kills=oom_kills))
    assert words in hint
    assert bool(hint) == bool(words)
    assert len(hint) < 220


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (6, "SIGABRT"), (37, "signal 37"), (0, "signal 0")]
)
def test_signals_have_names(number, name):
    assert render_exit(killed(3, number)) == f"rank 3 (pid 103) was killed by {name}"


STARTER = """
import os, resource, sys
from ompbind.execution.outcome import KIB, make_usage
if os.fork():  # what executes this had the peak of the process that started it, which can be anything
    os.wait()
    os._exit(0)
before = bytearray(os.urandom(1 << 20) * 60)  # 60 MiB that this process, and so its peak, has had
del before
floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
code = f"kept = b'x' * ({sys.argv[1]} << 20)"
pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
used = make_usage(os.wait4(pid, 0)[2], 1.0, floor)
print(used.max_rss_bytes or 0, used.user_s + used.system_s > 0, flush=True)
"""


@pytest.mark.parametrize("size", [0, 300])
def test_the_peak_of_a_child_is_known_only_if_it_is_its_own(size):
    done = subprocess.run(
        [sys.executable, "-c", STARTER, str(size)], capture_output=True, text=True, check=True, timeout=60
    )
    peak, used = done.stdout.split()
    assert int(peak) > size << 20 if size else peak == "0"
    assert used == "True"


TRACE = ("Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "ValueError: no")
TRACE_SHOWN = "".join(f"\n    {line}" for line in TRACE)
ODD_WORDS = ("", " ", "\x1b[31mred\x1b[0m\tend \x1b]0;title\x07", "", "10%\r20%\r", "a\x07b", "\n")
SEGV_HINT = """
  hint: with OpenMP often a stack overflow: try --env OMP_STACKSIZE=64M for its
  threads and 'ulimit -s unlimited' for the initial thread"""


@pytest.mark.parametrize(
    ("finished", "text"),
    [
        (outcome(), ""),
        (outcome(coded(0, 0)), ""),
        (outcome(coded(0, 1)), ""),
        (outcome(coded(0, 1, last_lines=TRACE)), ""),  # the command has written that itself
        (outcome(killed(0, 15)), ""),
        (outcome(killed(0, 2)), ""),
        (outcome(killed(0, 13)), ""),
        (outcome(killed(0, 1)), ""),
        (outcome(killed(0, 15, stopped=True), timed_out=True), ""),
        (outcome(killed(0, 6, last_lines=TRACE)), "ompbind: rank 0 (pid 100) was killed by SIGABRT"),
        (outcome(killed(0, 11)), f"ompbind: rank 0 (pid 100) was killed by SIGSEGV{SEGV_HINT}"),
        (outcome(coded(0, 0), coded(1, 0)), ""),
        (outcome(coded(0, 1), coded(1, 1)), ""),  # each was reported at once
        (outcome(killed(0, 6), killed(1, 15, stopped=True)), ""),
        (outcome(coded(0, 1, last_lines=("\x1b[0m", " \r")), coded(1, 0)), ""),  # only invisible characters
        (
            outcome(coded(2, 1, last_lines=TRACE), *(killed(rank, 15, stopped=True) for rank in (3, 0, 1))),
            f"ompbind: rank 2 (pid 102) exited with code 1; its last lines:{TRACE_SHOWN}\n"
            "ompbind: stopped: ranks 0-1,3",
        ),
        (
            outcome(coded(2, 1), coded(3, 1, last_lines=TRACE), coded(0, 1, last_lines=("x",)), coded(1, 0)),
            f"ompbind: ranks 0,2-3 exited with code 1; last lines of rank 3:{TRACE_SHOWN}",
        ),
        (
            outcome(killed(1, 11), killed(0, 11), coded(2, 3), coded(3, 0, stopped=True)),
            f"ompbind: ranks 0-1 were killed by SIGSEGV{SEGV_HINT}\nompbind: stopped: rank 3",
        ),
        (
            outcome(killed(1, 9), coded(0, 1), coded(2, 2, last_lines=("gone",)), oom_kills=1),
            """\
ompbind: rank 1 (pid 101) was killed by SIGKILL
  hint: memory ran out, and the kernel killed a process of this cgroup: raise
  the memory limit (of the container, of the job), or start fewer ranks
ompbind: rank 2 (pid 102) exited with code 2; its last lines:
    gone""",
        ),
        (
            outcome(coded(0, 1, last_lines=ODD_WORDS), coded(1, 0)),
            """\
ompbind: rank 0 (pid 100) exited with code 1; its last lines:
    red     end

    20%
    a?b""",
        ),
    ],
)  # fmt: skip
def test_failures_are_reported(finished, text):
    assert render_failures(finished) == text


def test_last_words_of_a_single_rank_are_shown_if_its_standard_error_was_not():
    text = f"ompbind: rank 0 (pid 100) exited with code 1; its last lines:{TRACE_SHOWN}"
    assert render_failures(outcome(coded(0, 1, last_lines=TRACE)), stderr_shown=False) == text
    assert render_failures(outcome(coded(0, 1)), stderr_shown=False) == ""


def test_long_last_words_and_many_ways_to_fail_are_cut():
    lines = tuple(f"line {number}" for number in range(30))
    shown = render_failures(outcome(coded(0, 1, last_lines=lines), coded(1, 0))).splitlines()[1:]
    assert shown == [f"    line {number}" for number in range(30 - LAST_LINES, 30)]
    long_ = render_failures(outcome(coded(0, 1, last_lines=("word " * 400,)), coded(1, 0)))
    assert "".join(long_.split()).count("word") == LINE_LIMIT // 5 - 1
    link = "https://" + "x" * 200
    assert link in render_failures(outcome(coded(0, 1, last_lines=(f"see {link} there",)), coded(1, 0)))
    text = render_failures(outcome(*(coded(rank, 1 + rank, last_lines=("why",)) for rank in range(20))))
    assert text.count("last lines") == LAST_LINES
    assert text.endswith("\nompbind: ranks 10-19 failed in other ways")


GIB = 1 << 30


TABLE = """\
rank  pid  status   wall s  user s  sys s  %CPU   memory  waits  forced
   0  200  SIGTERM    4000    0.00   0.00    0%        -      0       0
   1  101  3          2.00    3.00   0.50   88%  1.0 GiB     12    123k
 all       3          4000    3.00   0.50    0%              12    123k"""


def test_a_table_of_what_ranks_used():
    finished = outcome(
        coded(1, 3, usage=Usage(wall_s=2.0, user_s=3.0, system_s=0.5, max_rss_bytes=GIB,
                                voluntary_switches=12, involuntary_switches=123456)),
        killed(0, 15, stopped=True, usage=Usage(wall_s=4000.0, user_s=0.004)).replace(pid=200),
    )  # fmt: skip
    assert render_usage_table(finished, PLAN) == TABLE
    assert len(render_usage_table(outcome(), PLAN).splitlines()) == 1
    assert len(render_usage_table(outcome(finished.exits[0]), PLAN).splitlines()) == 2  # no sums
    once, again = coded(1, 0), coded(0, 0, attempt=3)
    lines = [line.split() for line in render_usage_table(outcome(again, once), PLAN).splitlines()]
    assert lines[0][:4] == ["rank", "pid", "attempts", "status"]
    assert [words[2] for words in lines[1:3]] == ["3", "1"]
    assert lines[3][:3] == ["all", "4", "0"]


@pytest.mark.parametrize(
    ("user_s", "wall_s", "share"),
    [(2.0, 1.0, "100%"), (0.0, 0.0, "-"), (1.0, 0.0, "-"), (20.0, 1.0, "1000%"), (400.0, 1.0, "200x")],
)
def test_more_cpu_time_than_the_cpus_of_a_rank_have_is_shown(user_s, wall_s, share):
    finished = outcome(coded(0, 0, usage=Usage(wall_s=wall_s, user_s=user_s)))
    assert render_usage_table(finished, PLAN).splitlines()[1].split()[6] == share


def test_service_cpus_count_as_cpus_of_the_rank():
    plan = make_plan(make_machine(Shape(cores=4)), Request(service_cores=2))
    finished = outcome(coded(0, 0, usage=Usage(wall_s=1.0, user_s=1.0)))
    assert render_usage_table(finished, plan).splitlines()[1].split()[6] == "25%"


TIMES = st.floats(0, 1e12)
COUNTS = st.integers(0, 1 << 62)
USAGES = st.builds(
    Usage, wall_s=TIMES, user_s=TIMES, system_s=TIMES, voluntary_switches=COUNTS, involuntary_switches=COUNTS,
    max_rss_bytes=st.none() | st.integers(0, 1 << 52),
)  # fmt: skip
ENDS = st.tuples(st.integers(0, 255), st.none()) | st.tuples(st.none(), st.integers(1, 64))
WORDS = st.lists(st.text(max_size=200), max_size=15).map(tuple)


@st.composite
def outcomes(draw):
    """Any outcome of a run of up to 30 ranks, in any order."""
    ranks = draw(st.lists(st.integers(0, 9999), unique=True, max_size=30))
    ends = [(draw(st.integers(1, 1 << 22)), draw(ENDS), draw(st.booleans())) for _ in ranks]
    exits = tuple(
        RankExit(rank=rank, pid=pid, code=code, signal=killer, stopped=stopped, usage=draw(USAGES),
               last_lines=draw(WORDS))
        for rank, (pid, (code, killer), stopped) in zip(ranks, ends, strict=True)
    )  # fmt: skip
    return Outcome(exits=exits, timed_out=draw(st.booleans()), oom_kills=draw(st.integers(0, 3)))


@given(outcomes())
def test_any_outcome_is_a_table_that_fits(finished):
    lines = render_usage_table(finished, PLAN).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 1 + len(finished.exits) + (len(finished.exits) > 1)


@given(outcomes(), st.booleans(), st.sampled_from([60, WIDTH, 200]))
def test_the_report_of_any_outcome_fits_and_is_plain(finished, stderr_shown, width):
    text = render_failures(finished, stderr_shown=stderr_shown, width=width)
    assert all(char.isprintable() or char == "\n" for char in text)
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line
    assert not re.search(r"last lines(?: of rank [0-9]+)?:(\n\S|$)", text)
    heads = [line for line in text.splitlines() if line.startswith("ompbind: ")]
    assert bool(heads) == bool(text)
    failed = {rank.rank for rank in finished.exits if rank.status != 0 and not rank.stopped}
    named = {int(rank) for line in heads for rank in re.findall(r"rank (\d+) \(pid", line)}
    assert named <= failed
    assert not text or failed


PAGE = (Path(__file__).parents[2] / "docs/running.md").read_text()
TITLES = ("When a rank fails", "CPU time and memory of ranks")
SECTIONS = "\n".join(PAGE.split(f"\n## {title}\n")[1].partition("\n## ")[0] for title in TITLES)
SHOWN = re.findall(r"```text\n(.*?)```", SECTIONS, re.S)


def test_the_page_shows_the_messages():
    words = (
        "Traceback (most recent call last):", '  File "/srv/serve.py", line 12, in <module>',
        '    sock.bind(("", 8000))', "OSError: [Errno 98] Address already in use",
    )  # fmt: skip
    first = RankExit(rank=2, pid=4712, code=1, last_lines=words)
    finished = outcome(first, *(killed(rank, 15, stopped=True) for rank in (0, 1, 3)))
    head = f"ompbind: {render_exit(first)}\nompbind: stopping ranks 0-1,3 with SIGTERM\n"
    assert SHOWN[0] == f"{head}{render_failures(finished)}\n"


def test_the_page_shows_the_table_and_explains_its_columns():
    usages = (
        Usage(wall_s=62.1, user_s=231.4, system_s=4.02, max_rss_bytes=int(1.8 * GIB),
              voluntary_switches=2041, involuntary_switches=310),
        Usage(wall_s=62.31, user_s=118.07, system_s=3.9, max_rss_bytes=int(1.7 * GIB),
              voluntary_switches=1987, involuntary_switches=48120),
    )  # fmt: skip
    plan = make_plan(make_machine(Shape(cores=8)), Request(ranks=2))
    finished = outcome(*(RankExit(rank=rank, pid=4710 + rank, code=0, usage=usages[rank]) for rank in (0, 1)))
    assert SHOWN[1] == render_usage_table(finished, plan) + "\n"
    columns = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.*?) \|", SECTIONS, re.M)))
    titles = re.split(r" {2,}", SHOWN[1].splitlines()[0].strip())
    assert ["attempts", *titles[2:]] == columns


def test_the_page_has_every_status_that_has_a_hint():
    section = PAGE.partition("## When a rank fails\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (?:SIG\w+, )?(\d+) \|", section, re.M)
    assert {int(cell) for cell in cells} == {rule.status for rule in FAILURE_HINTS if rule.status}
    for name, status in re.findall(r"^\| (SIG\w+), (\d+) \|", PAGE, re.M):
        assert Signals[name] + 128 == int(status)


def test_throttling_is_named_if_there_was_any():
    plan = PLAN.replace(machine=PLAN.machine.replace(quota=2.0))
    some = Throttling(cgroup="c", periods=104, throttled_periods=37, throttled_s=5.81)
    for throttling in (None, Throttling(cgroup="c", periods=9)):
        assert render_throttling(outcome(coded(0, 0), throttling=throttling), plan) == ""
    text = render_throttling(outcome(coded(0, 0), throttling=some), plan)
    assert "of 2 CPUs throttled this cgroup in 37 of 104 periods" in " ".join(text.split())
    assert text in PAGE
