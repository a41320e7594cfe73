"""The report of a run as JSON, and its page in the documentation, which has exactly the same fields."""

import json
import re
from pathlib import Path

from ompbind.commands.environment import RunSpec, make_all_variables
from ompbind.errors import CommandNotFoundError, LaunchError
from ompbind.execution.outcome import Outcome, RankExit, Usage
from ompbind.machine.read.linux_cgroup import Throttling
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.plan_json import render_plan_json, render_run
from tests.inspection.test_verdict import bad, make_verified
from tests.machines import Shape, make_machine

PLAN = make_plan(make_machine(Shape(cores=8)), Request(ranks=2))
SPEC = RunSpec(argv=("./app", "a b"), run_id="night", base={})


def rendered(*exits, **more):
    return render_run(PLAN, SPEC, Outcome(exits=exits, **more), 5.25)


def test_a_report_has_everything():
    used = Usage(wall_s=2.5, user_s=1.0, system_s=0.5, max_rss_bytes=1 << 20, voluntary_switches=3,
                 involuntary_switches=4)  # fmt: skip
    text = rendered(
        RankExit(rank=1, pid=11, code=None, signal=11, usage=used, last_lines=("gone",), attempt=2,
                 started=2.0, earlier=(RankExit(rank=1, pid=9, code=3, started=1.5),)),
        RankExit(rank=0, pid=10, code=0, stopped=True),
    )  # fmt: skip
    record = json.loads(text)
    assert record.pop("plan") == json.loads(render_plan_json(PLAN, make_all_variables(PLAN, SPEC)))
    first, second = record.pop("ranks")
    assert record == {
        "schema": "ompbind-run/1", "run_id": "night", "command": ["./app", "a b"], "started": 5.25,
        "exit_code": 139, "timed_out": False, "oom_kills": 0, "throttling": None,
        "error": None, "troubles": [], "verified": None,
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


def test_what_stopped_a_run_is_reported():
    throttling = Throttling(cgroup="c", periods=5, throttled_periods=2, throttled_s=0.5)
    exited = RankExit(rank=0, pid=1, code=0)
    record = json.loads(rendered(exited, timed_out=True, oom_kills=2, throttling=throttling))
    assert record["throttling"] == {"periods": 5, "throttled_periods": 2, "throttled_s": 0.5}
    assert (record["exit_code"], record["timed_out"], record["oom_kills"]) == (124, True, 2)
    stopped = RankExit(rank=0, pid=10, code=None, signal=15, stopped=True)
    for error, code in ((LaunchError("no more processes", hint="x"), 125), (CommandNotFoundError("x"), 127)):
        record = json.loads(rendered(stopped, error=error))
        assert (record["error"], record["exit_code"]) == (error.message, code)
        assert [rank["rank"] for rank in record["ranks"]] == [0]


def test_the_page_on_formats_has_every_field_and_no_other():
    page = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    section = page.split("schema `ompbind-run/1`\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    documented = [name.removesuffix("[]") for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    record = json.loads(rendered(RankExit(rank=0, pid=1, code=0), verified=make_verified(bad())))
    (rank,), (checked,) = record["ranks"], record["verified"]["ranks"]
    parts = {
        "": record, "ranks[].": rank, "ranks[].attempts[].": rank["attempts"][0],
        "verified.": record["verified"], "verified.ranks[].": checked,
        "verified.ranks[].findings[].": checked["findings"][0],
    }  # fmt: skip
    lists = {"schema", "ranks", "ranks[].attempts", "verified.ranks", "verified.ranks[].findings"}
    fields = {f"{at}{name}" for at, part in parts.items() for name in part}
    assert sorted(documented) == sorted(fields - lists)
