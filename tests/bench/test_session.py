"""The main loop of a session, and its results file: resumed at any byte, and never damaged."""

import errno
import json
import os
import random
import resource
import signal
from contextlib import closing
from pathlib import Path

import pytest

from ompbind.bench import results as results_
from ompbind.bench.decision import conclude
from ompbind.bench.records import Metric, NextRound, Rules, Run, Status
from ompbind.bench.results import DROP, ENDED, RUN, make_record, open_results, read_results
from ompbind.bench.run_candidate import catch_interrupts
from ompbind.bench.session import SessionLoop, make_order
from ompbind.errors import LaunchError, RequestError
from tests.bench import sessions
from tests.bench.sessions import NAMES, find_next, make_run, make_session, make_starts, make_usual_session
from tests.long import rounds


def run(session, start=make_run, budget_s=None, decide=find_next, save=lambda count: None):
    """Return the loop that has run a session, the saved events, and what was shown: candidates and events."""
    saved, shown = [], ([], [])

    def save_event(event):
        save(len(saved))
        saved.append(event)

    loop = SessionLoop(
        session, make_starts(session), start, save_event, find_next=decide,
        show_start=lambda *start: shown[0].append(start[2]), show_event=shown[1].append,
    )  # fmt: skip
    with catch_interrupts() as loop.arrived:
        loop.run(budget_s)
    return loop, saved, shown


def before(at, act):

    def start(candidate, number, round_number):
        if at in (number, candidate.candidate.name):
            act()
        return make_run(candidate, number, round_number)

    return start


def fail():
    raise LaunchError("disk full")


def kinds(saved):
    return [event["event"] for event in saved]


def test_runs_each_candidate_once_per_round_and_saves_what_happens():
    def decide(session):
        dropped = (("smt=2", "slow"),) if len(session.runs) in (6, 18) else ()
        return find_next(session).replace(dropped=dropped)

    loop, saved, shown = run(make_session(), decide=decide)
    runs = loop.session.runs
    assert (loop.session.ended, loop.error) == ("decided", None)
    assert [(each.number, each.round) for each in runs] == [(number, number // 3) for number in range(18)]
    assert len({(each.round, each.candidate) for each in runs}) == 18
    assert kinds(saved) == [*[RUN] * 6, DROP, *[RUN] * 12, DROP, ENDED]
    assert shown == ([each.candidate for each in runs], saved)
    assert run(loop.session, decide=decide)[1] == [], "a finished session adds nothing"


def test_the_order_is_random_and_depends_on_the_seed_alone():
    rounds = [NextRound(round=number, candidates=NAMES) for number in range(1, 41)]
    orders = [make_order(upcoming, 7) for upcoming in rounds]
    assert len(set(orders)) == 6  # all orders of three candidates
    swapped = [upcoming.replace(candidates=NAMES[::-1]) for upcoming in rounds]
    assert orders == [make_order(upcoming, 7) for upcoming in swapped]
    assert orders != [make_order(upcoming, 8) for upcoming in rounds]


@pytest.mark.parametrize(("budget_s", "runs"), [(0.0, 0), (3.3, 3), (4.3, 4), (1000.0, 3 * sessions.ROUNDS)])
def test_stops_before_a_run_that_would_exceed_the_budget(budget_s, runs, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def start(candidate, number, round_number):
        made = make_run(candidate, number, round_number)
        now[0] += max(made.wall_s) if round_number else 0.0
        return made

    loop, saved, _ = run(make_session(), start=start, budget_s=budget_s)
    assert len(loop.session.runs) == 3 + runs
    assert saved[-1]["reason"] == loop.session.ended
    used_up = f"the budget of {budget_s:g} s is used up: the next run would exceed it"
    assert loop.session.ended == (used_up if runs < 3 * sessions.ROUNDS else "decided")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("saving", [False, True])
def test_a_signal_keeps_the_runs_before_and_the_run_that_is_saved(number, saving):
    handler = signal.getsignal(number)
    ignored = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it stays ignored, as after nohup

    def act():
        for each in (signal.SIGTERM, number):
            signal.raise_signal(each)  # of this thread: pytest-xdist has others

    acting = {"save": lambda count: act() if count == 4 else None} if saving else {"start": before(5, act)}
    loop, saved, _ = run(make_session(), **acting)
    signal.signal(signal.SIGTERM, ignored)
    assert loop.arrived == [number]
    assert (loop.session.ended, len(loop.session.runs), loop.error) == ("interrupted", 5, None)
    assert kinds(saved) == [RUN] * 5 + [ENDED]
    assert signal.getsignal(number) is handler


def test_an_error_stops_the_session_and_a_candidate_that_cannot_start_has_failed():
    loop, saved, _ = run(make_session(), start=before(7, lambda: 1 / 0))
    assert isinstance(loop.error, ZeroDivisionError)
    assert len(loop.session.runs) == 7
    assert "division by zero" in loop.session.ended
    assert saved[-1]["event"] == ENDED
    loop, _, _ = run(make_session(), save=lambda count: fail() if count == 3 else None)
    assert (loop.error.message, len(loop.session.runs)) == ("disk full", 4)
    session = run(make_session(), start=before("smt=2", fail))[0].session
    failed = [(each.status, each.reason) for each in session.runs if each.candidate == "smt=2"]
    assert ({*failed}, session.ended) == ({(Status.FAILED, "disk full")}, "decided")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.jsonl")


def run_with_file(path, session=None):
    results, session = open_results(path, session or make_session(), any_seed=True)
    with closing(results):
        loop = SessionLoop(session, make_starts(session), make_run, results.append, find_next=find_next)
        loop.run()
    return loop.session


def read_error(path, session=None, *, any_seed=True):
    before = Path(path).read_bytes()
    with pytest.raises(RequestError) as caught:
        open_results(path, session or make_session(), any_seed=any_seed)
    assert Path(path).read_bytes() == before
    assert caught.value.hint
    return caught.value.message


def test_a_file_that_is_cut_at_any_byte_is_readable_and_resumes(tmp_path):
    whole = str(tmp_path / "whole.jsonl")
    session = run_with_file(whole)
    data = Path(whole).read_bytes()
    cuts = {0, 1, 5, 20, 40, len(data) - 1, *random.Random(1).sample(range(len(data)), rounds(60))}
    for cut in sorted(cuts):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(data[:cut])
        complete = data[:cut].count(b"\n")
        if complete:
            assert read_results(str(path)).runs == session.runs[: complete - 1]
        assert run_with_file(str(path)) == session
        assert path.read_bytes() == data


def change_hardware(session, **changes):
    return session.replace(hardware=session.hardware.replace(**changes))


DIFFERENCES = [
    (lambda s: change_hardware(s, processor="slow"), "processor: EPYC 9654, now slow"),
    (lambda s: change_hardware(s, digest="xyz"), "topology: digest 000000000000, now digest xyz"),
    (lambda s: change_hardware(s, quota=2.5), "CPU quota: none, now 2.5 CPUs"),
    (lambda s: s.replace(metrics=(Metric(name="x", pattern="x(.)", higher=True),)), "now x 'x(.)'"),
    (lambda s: s.replace(rules=Rules(seed=7, max_rounds=39)), "--max-rounds: 40, now only 39"),
    (lambda s: s.replace(candidates=s.candidates[:2]), "unbound; default; smt=2, now unbound; default"),
    (lambda s: s.replace(candidates=(s.candidates[0].replace(digest="new"), *s.candidates[1:])),
     "other plans or variables of unbound"),
    (lambda s: change_hardware(s, processor="slow", digest="x", allowed="0", quota=1.0), "1 more"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "text"), DIFFERENCES, ids=[text[:20] for _, text in DIFFERENCES])
def test_another_session_is_refused(path, change, text):
    run_with_file(path)
    message = read_error(path, change(make_session()))
    assert path in message
    assert text in message


def test_a_session_is_resumed_with_more_rounds_by_another_host_and_with_its_own_seed(path):
    """As after "not known yet": the larger number is in the file, and the earlier runs count."""
    session = run_with_file(path)
    other = change_hardware(make_session(version="2", started=9.0), hostname="container-2")
    assert run_with_file(path, other) == session
    more = make_session(rules=Rules(seed=8, max_rounds=60))
    resumed = run_with_file(path, more)
    assert (resumed.rules, resumed.runs) == (Rules(seed=7, max_rounds=60), session.runs)
    assert read_results(path) == resumed
    assert "--seed: 7, now 8" in read_error(path, more, any_seed=False)
    assert "--max-rounds: 60, now only 40" in read_error(path)
    file, kept = open_results(path, make_session(), any_seed=True, keeps_rounds=True)
    file.close()
    assert kept == resumed
    size = os.path.getsize(path)
    run_with_file(path, more)
    assert os.path.getsize(path) == size


@pytest.mark.parametrize(("content", "why"), [
    (b"my notes", "not a results file"), (b"my notes\n", "line 1: not JSON"),
    (b"[1]\n", "line 1: not a JSON object"),
    (b'{"schema": "ompbind-run/1"}\n', "line 1: the schema is not ompbind-bench/2"),
    (b'{"schema": "ompbind-bench/2"}\n', "line 1: Session has no version, started, hardware, command"),
    (b"\xff\n", "codec"), (None, "line 4: not JSON"),
])  # fmt: skip
def test_a_file_of_something_else_and_a_damaged_line_are_refused_untouched(path, content, why):
    if content is None:
        run_with_file(path)
        lines = Path(path).read_bytes().splitlines(keepends=True)
        content = b"".join([*lines[:3], b"{\n", *lines[3:]])
    Path(path).write_bytes(content)
    assert why in read_error(path)
    if content.endswith(b"\n"):
        with pytest.raises(RequestError, match=why):
            read_results(path)


def test_paths_that_cannot_be_written_are_refused_and_a_link_is_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("a.fifo")
    for path in ("/dev", "/dev/null", "/no/such/directory/a.jsonl", "/dev/null/a", "", "a.fifo"):
        with pytest.raises(RequestError, match="--results"):
            open_results(path, make_session(), any_seed=True)
    Path("link").symlink_to("a.jsonl")
    assert run_with_file("link") == read_results("a.jsonl")


def test_a_full_disk_leaves_complete_lines_and_two_sessions_cannot_use_a_file(path, monkeypatch):
    """A limit on the size of files stands for a full disk: a write stops in a line; SIGXFSZ is ignored."""
    results, session = open_results(path, make_session(), any_seed=True)
    size = os.path.getsize(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        with pytest.raises(LaunchError, match=os.strerror(errno.EFBIG)):
            results.append(results_.make_event(results_.RUN, make_run(make_starts(session)[0], 0, 0)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.path.getsize(path) == size
    results.append({"event": results_.ENDED, "reason": "a disk that was full"})
    assert read_results(path).ended == "a disk that was full"
    monkeypatch.setattr("ompbind.bench.results.LOCK_TIMEOUT_S", 0.05)
    assert "another session" in read_error(path)
    results.close()
    assert run_with_file(path).ended


A_RUN = {"candidate": "a", "number": 0, "round": 1, "started": 1}


def test_all_fields_are_read_back_and_missing_ones_have_their_defaults():
    session = make_usual_session()
    for record in (session, conclude(session)):
        assert make_record(type(record), json.loads(json.dumps(results_.make_json(record)))) == record
    assert make_record(Metric, {"name": "x", "colour": "of a newer version"}) == Metric(name="x")
    assert make_record(Run, A_RUN).started == 1.0
    with pytest.raises(ValueError, match="has no candidate, started"):
        make_record(Run, {name: A_RUN[name] for name in ("number", "round")})


@pytest.mark.parametrize(("change", "wrong"), [
    ({"candidate": 3}, "Run.candidate: unexpected value 3"),
    ({"values": ["fast"]}, "Run.values: unexpected value 'fast'"),
    ({"values": [float("inf")]}, "Run.values: unexpected value inf"),
    ({"user_s": float("nan")}, "Run.user_s: unexpected value nan"),
    ({"wall_s": [10**400]}, "Run.wall_s: unexpected value 1000"), ({"values": 1.0}, "Run.values: .* 1.0"),
    ({"number": True}, "Run.number: unexpected value True"), ({"status": "great"}, "Run.status: 'great'"),
    ({"conditions": {"other_runs": None}}, "Conditions.other_runs: unexpected value None"),
    ({"conditions": 5}, "Run.conditions: Conditions is no object"),
])  # fmt: skip
def test_wrong_values_are_named(change, wrong):
    with pytest.raises(ValueError, match=wrong):
        make_record(Run, {**A_RUN, **change})
