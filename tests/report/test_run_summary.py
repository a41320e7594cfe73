"""The summary of a finished run, and its report as JSON with exactly the fields of its page."""

import json
import re
from pathlib import Path
from signal import Signals

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.commands.environment import RunSpec, make_all_variables
from ompbind.errors import LaunchError
from ompbind.execution.outcome import Outcome, RankExit, Usage
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report import run_summary
from ompbind.report.plan_json import render_plan_json, render_run
from ompbind.report.run_summary import OUT_OF_MEMORY, find_hint, render_failures, render_usage_table
from ompbind.report.text import WIDTH
from tests.inspection.test_verdict import bad, make_verified
from tests.machines import Shape, make_machine

PLAN = make_plan(make_machine(Shape(cores=8)), Request(ranks=4))
"""Four ranks of two CPUs."""
PAGE = (Path(__file__).parents[2] / "docs/running.md").read_text()


def coded(rank, code, **more):
    return RankExit(rank=rank, pid=100 + rank, code=code, **more)


def killed(rank, number, **more):
    return RankExit(rank=rank, pid=100 + rank, code=None, signal=number, **more)


def outcome(*exits, **more):
    return Outcome(exits=exits, **more)


def test_hints_name_the_usual_cause_of_a_status():
    shell, memory = "if a shell exited with code 137, SIGKILL killed its command: ", OUT_OF_MEMORY
    for exited, oom_kills, words in (
        (coded(0, 0), 1, ""), (coded(0, 1), 0, ""), (coded(0, 1), 1, memory), (coded(0, 255), 0, ""),
        (coded(0, 127), 0, "PATH"), (coded(0, 127), 1, "PATH"), (coded(0, 126), 0, ""), (killed(0, 4), 0, ""),
        (killed(0, 9), 0, "not sent by ompbind"), (killed(0, 9), 2, memory), (killed(0, 6), 0, ""),
        (killed(0, 9, stopped=True), 1, ""), (coded(0, 137), 0, f"{shell}not sent by ompbind"),
        (coded(0, 137), 1, f"{shell}{memory}"), (killed(0, Signals.SIGSYS), 1, memory),
        (killed(0, 11), 0, "OMP_STACKSIZE"), (coded(0, 139), 0, "code 139, SIGSEGV killed its command"),
        (killed(0, Signals.SIGBUS), 0, "shared memory"),
        (coded(0, 1, last_lines=("address already in use", "exiting")), 0, "--env PORT={rank+8000}"),
        (killed(0, 15), 0, ""), (killed(0, 37), 0, ""), (coded(0, 128), 0, ""),
    ):  # fmt: skip
        hint = find_hint(exited, outcome(exited, oom_kills=oom_kills))
        assert words in hint
        assert bool(hint) == bool(words)


TRACE = ("Traceback (most recent call last):", '  File "a.py", line 1, in <module>', "ValueError: no")
TRACE_SHOWN = "".join(f"\n    {line}" for line in TRACE)
ODD_WORDS = ("", " ", "\x1b[31mred\x1b[0m\tend \x1b]0;title\x07", "", "10%\r20%\r", "a\x07b", "\n")


TABLE = """\
rank  pid  status   wall s  user s  sys s  %CPU   memory  waits  forced
   0  200  SIGTERM    4000    0.00   0.00    0%        -      0       0
   1  101  3          2.00    3.00   0.50   88%  1.0 GiB     12    123k
 all       3          4000    3.00   0.50    0%              12    123k"""


def test_a_table_of_what_ranks_used():
    finished = outcome(
        coded(1, 3, usage=Usage(wall_s=2.0, user_s=3.0, system_s=0.5, max_rss_bytes=1 << 30,
                                voluntary_switches=12, involuntary_switches=123456)),
        killed(0, 15, stopped=True, usage=Usage(wall_s=4000.0, user_s=0.004)).replace(pid=200),
    )  # fmt: skip
    assert render_usage_table(finished, PLAN) == TABLE
    assert len(render_usage_table(outcome(), PLAN).splitlines()) == 1
    assert len(render_usage_table(outcome(finished.exits[0]), PLAN).splitlines()) == 2  # no sums
    once, again = coded(1, 0), coded(0, 0, attempt=3)
    lines = [" ".join(line.split()) for line in render_usage_table(outcome(again, once), PLAN).splitlines()]
    for line, start in zip(
        lines, ("rank pid attempts status", "0 100 3 0", "1 101 1 0", "all 4 0"), strict=True
    ):
        assert line.startswith(start)


@pytest.mark.parametrize(("busy", "rate", "delay", "changes", "ranks"), [
    (1.0, 280, 0.5, {}, "ranks 1-2 competed for CPUs 2-5: "),  # per second and CPU, as measured
    (0.98, 83, 0.5, {}, "ranks 1-2"), (0.98, 300, 0.0, {}, "ranks 1-2"), (1.0, 300, None, {}, "ranks 1-2"),
    # one thread, with other programs; few switches; other programs use the CPUs; a short run
    (0.99, 194, 0.01, {}, ""), (1.0, 6, 0.0, {}, ""), (0.5, 300, 0.5, {}, ""), (1.0, 49, 0.7, {}, ""),
    (1.0, 280, 0.5, {"wall_s": 1.9}, ""), (1.0, 280, 0.5, {"threads": 3}, ""),
    (1.0, 280, 0.5, {"processes_per_rank": 2}, ""), (1.0, 280, 0.5, {"verified": make_verified(bad())}, ""),
])  # fmt: skip
def test_ranks_whose_threads_competed_are_named_with_a_remedy(busy, rate, delay, changes, ranks):
    wall_s = changes.get("wall_s", 4.0)
    used = Usage(
        wall_s=wall_s, user_s=2 * busy * wall_s, involuntary_switches=int(2 * rate * wall_s)
    )  # of both CPUs
    delay_s = None if delay is None else delay * wall_s
    exits = [coded(rank, 0, usage=used, delay_s=delay_s) for rank in (2, 1)]
    options = {name: changes[name] for name in ("threads", "processes_per_rank") if name in changes}
    plan = make_plan(make_machine(Shape(cores=8)), Request(ranks=4, **options))
    finished = outcome(*exits, coded(0, 0), verified=changes.get("verified"))
    text = run_summary.render_contention(finished, plan, 200)
    assert text.startswith(f"ompbind: threads of {ranks}" if ranks else "")
    assert (" -c " in text) == bool(ranks) == bool(text)


TIMES = st.floats(0, 1e12)
COUNTS = st.integers(0, 1 << 62)
USAGES = st.builds(
    Usage, wall_s=TIMES, user_s=TIMES, system_s=TIMES, voluntary_switches=COUNTS, involuntary_switches=COUNTS,
    max_rss_bytes=st.none() | st.integers(0, 1 << 52),
)  # fmt: skip
ENDS = st.tuples(st.integers(0, 255), st.none()) | st.tuples(st.none(), st.integers(1, 64))
WORDS = st.lists(st.text(max_size=200), max_size=15).map(tuple)
ENDED = st.builds(
    lambda rank, pid, end, **more: RankExit(rank=rank, pid=pid, code=end[0], signal=end[1], **more),
    st.integers(0, 9999), st.integers(1, 1 << 22), ENDS, stopped=st.booleans(), usage=USAGES,
    last_lines=WORDS,
)  # fmt: skip
OUTCOMES = st.builds(
    Outcome, exits=st.lists(ENDED, unique_by=lambda ended: ended.rank, max_size=30).map(tuple),
    timed_out=st.booleans(), oom_kills=st.integers(0, 3),
)  # fmt: skip
"""Any outcome of a run of up to 30 ranks, in any order."""


@given(OUTCOMES, st.booleans(), st.sampled_from([60, WIDTH, 200]))
def test_the_report_of_any_outcome_fits_and_is_plain(finished, stderr_shown, width):
    text = render_failures(finished, stderr_shown=stderr_shown, width=width)
    assert all(char.isprintable() or char == "\n" for char in text)
    for line in text.splitlines():
        assert len(line) <= width or len(line.split()) == 1, line
    failed = {rank.rank for rank in finished.exits if rank.status != 0 and not rank.stopped}
    named = {int(rank) for rank in re.findall(r"^ompbind: rank (\d+) \(pid", text, re.M)}
    assert named <= failed
    assert not text or failed
    lines = render_usage_table(finished, PLAN).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == 1 + len(finished.exits) + (len(finished.exits) > 1)


def test_throttling_is_named_if_there_was_any():
    plan = PLAN.replace(machine=PLAN.machine.replace(quota=2.0))
    some = Throttling(cgroup="c", periods=104, throttled_periods=37, throttled_s=5.81)
    for throttling in (None, Throttling(cgroup="c", periods=9)):
        assert run_summary.render_throttling(outcome(coded(0, 0), throttling=throttling), plan) == ""
    text = run_summary.render_throttling(outcome(coded(0, 0), throttling=some), plan)
    assert "of 2 CPUs throttled this cgroup in 37 of 104 periods" in " ".join(text.split())
    assert text in PAGE


@pytest.mark.parametrize(("finished", "lines"), [
    (outcome(), []),
    (outcome(coded(0, 1, last_lines=TRACE)), []),  # the command has written that itself
    *((outcome(killed(0, number)), []) for number in (1, 2, 13, 15)),
    (outcome(killed(0, 15, stopped=True), timed_out=True), []),
    (outcome(killed(0, 6, last_lines=TRACE)), ["rank 0 (pid 100) was killed by SIGABRT"]),
    (outcome(killed(0, 37)), ["rank 0 (pid 100) was killed by signal 37"]),
    (outcome(coded(0, 1), coded(1, 1)), []),  # each was reported at once
    (outcome(killed(0, 6), killed(1, 15, stopped=True)), []),
    (outcome(coded(0, 1, last_lines=("\x1b[0m", " \r")), coded(1, 0)), []),  # only invisible characters
    (outcome(coded(2, 1, last_lines=TRACE), *(killed(rank, 15, stopped=True) for rank in (3, 0, 1))),
     [f"rank 2 (pid 102) exited with code 1; its last lines:{TRACE_SHOWN}", "stopped: ranks 0-1,3"]),
    (outcome(coded(2, 1), coded(3, 1, last_lines=TRACE), coded(0, 1, last_lines=("x",)), coded(1, 0)),
     [f"ranks 0,2-3 exited with code 1; last lines of rank 3:{TRACE_SHOWN}"]),
    (outcome(killed(1, 11), killed(0, 11), coded(2, 3), coded(3, 0, stopped=True)),
     ["ranks 0-1 were killed by SIGSEGV", "stopped: rank 3"]),
    (outcome(killed(1, 9), coded(0, 1), coded(2, 2, last_lines=("gone",)), oom_kills=1),
     ["rank 1 (pid 101) was killed by SIGKILL",
      "rank 2 (pid 102) exited with code 2; its last lines:\n    gone"]),
    (outcome(coded(0, 1, last_lines=ODD_WORDS), coded(1, 0)),
     ["rank 0 (pid 100) exited with code 1; its last lines:\n    red     end\n\n    20%\n    a?b"]),
])  # fmt: skip
def test_failures_are_reported(finished, lines):
    shown = re.sub(r"\n  (?! ).*", "", render_failures(finished))  # without hints
    assert shown == "\n".join(f"ompbind: {line}" for line in lines)


SPEC = RunSpec(argv=("./app", "a b"), run_id="night", base={})


def test_a_report_has_everything():
    used = Usage(wall_s=2.5, user_s=1.0, system_s=0.5, max_rss_bytes=1 << 20, voluntary_switches=3,
                 involuntary_switches=4)  # fmt: skip
    exits = (
        RankExit(rank=1, pid=11, code=None, signal=11, usage=used, last_lines=("gone",), attempt=2,
                 started=2.0, earlier=(RankExit(rank=1, pid=9, code=3, started=1.5),)),
        RankExit(rank=0, pid=10, code=0, stopped=True),
    )  # fmt: skip
    throttling = Throttling(cgroup="c", periods=5, throttled_periods=2, throttled_s=0.5)
    more = {"throttling": throttling, "timed_out": True, "oom_kills": 2, "error": LaunchError("no files")}
    record = json.loads(render_run(PLAN, SPEC, outcome(*exits, **more), 5.25))
    assert record.pop("plan") == json.loads(render_plan_json(PLAN, make_all_variables(PLAN, SPEC)))
    first, second = record.pop("ranks")
    assert record == {
        "schema": "ompbind-run/1", "run_id": "night", "command": ["./app", "a b"], "started": 5.25,
        "exit_code": 125, "timed_out": True, "oom_kills": 2, "error": "no files", "troubles": [],
        "throttling": {"periods": 5, "throttled_periods": 2, "throttled_s": 0.5}, "verified": None,
        "held": None,
    }  # fmt: skip
    assert (first["rank"], first["stopped"], first["hint"], first["signal_name"]) == (0, True, None, None)
    assert second.pop("hint").startswith("with OpenMP")
    assert second == {
        "rank": 1, "pid": 11, "exit_code": None, "signal": 11, "signal_name": "SIGSEGV", "stopped": False,
        "wall_s": 2.5, "user_s": 1.0, "system_s": 0.5, "max_rss_bytes": 1 << 20, "voluntary_switches": 3,
        "involuntary_switches": 4, "last_words": ["gone"], "command": None, "directory": None,
        "attempts": [
            {"attempt": 1, "pid": 9, "exit_code": 3, "signal": None, "started": 1.5, "wall_s": 0.0},
            {"attempt": 2, "pid": 11, "exit_code": None, "signal": 11, "started": 2.0, "wall_s": 2.5},
        ],
    }  # fmt: skip
