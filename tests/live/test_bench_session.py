"""Sessions of `ompbind bench` with real ranks: shown, saved, resumed, stopped and compared."""

import json
import os
import re
import shlex
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ompbind.bench.records import Status
from ompbind.bench.results import list_events, parse_session, read_results
from tests.bench.sessions import NAMES, make_session
from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, Terminal, find_processes, one_line, wait_until
from tests.long import rounds
from tests.packaging.scripts import load_script

QUICK = ("--vary", "bind=rank,thread", "--max-rounds", "4")
"""A session of some twenty runs."""
FOUR_CORES = ("--topology", "synthetic:pack:2 core:2 pu:2")
EXAMPLES = Path(__file__).parents[2] / "docs/examples"


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "a.jsonl")


def bench(ompbind, *options, command=("true",)):
    return ompbind("bench", *QUICK, *options, "--", *command)


def count_runs(path):
    """Return the number of runs in a results file, 0 before its first line is written."""
    return len(read_results(path).runs) if os.path.exists(path) and os.path.getsize(path) else 0


def test_a_session_is_shown_saved_and_shown_again(ompbind, path):
    done = bench(ompbind, "--results", path)
    assert done.returncode == 0, done.stderr
    assert "bind=thread" in done.stdout
    note = r"ompbind: note: a run takes 0\.\d+ s, so the session takes .* at most; a clear result needs less"
    assert re.fullmatch(note, one_line(done.stderr)), "without a terminal, and not resumed"
    session = read_results(path)
    assert {run.status for run in session.runs} == {Status.OK}
    assert (session.command, session.options[:2]) == (("true",), ("--vary", "bind=rank,thread"))
    assert session.ended in done.stdout
    size = os.path.getsize(path)
    for again in (ompbind("bench", "--show", path), bench(ompbind, "--results", path)):
        assert (again.stdout, again.returncode) == (done.stdout, 0)
    assert f"has {len(session.runs)} runs: the session is resumed" in one_line(again.stderr)
    assert os.path.getsize(path) == size


def test_events_are_the_lines_of_the_file_and_secret_values_are_counted(ompbind, path):
    varied = ("--vary", "env=API_KEY=s3cret1,API_KEY=s3cret2", "--max-rounds", "1", "--results", path)
    command = ("sh", "-c", "! read line")  # no rank has the input of bench
    done = ompbind("bench", *varied, "--format", "jsonl", "--", *command, stdin=None, input="a line\n")
    assert (done.returncode, "env=API_KEY=*** (2)" in done.stdout) == (0, True)
    assert not re.search("s3cret|disqualified|failed", done.stdout)
    *lines, last = done.stdout.splitlines()
    assert (lines, json.loads(last)["event"]) == (Path(path).read_text().splitlines(), "conclusion")


@pytest.mark.parametrize(("options", "command", "code", "message"), [
    (("--max-rounds", "1"), ("false",), 1, ""),
    ((), ("./no-such-program",), 2, "command not found: ./no-such-program"),
    (("--export", "csv=/no/such/a.csv"), ("touch", "ran"), 2, "/no/such/a.csv"),
    (("-n", "999", "-q"), ("touch", "ran"), 1, "999 ranks do not fit on"),
], ids=["failed", "missing", "export", "no candidate"])  # fmt: skip
def test_a_session_without_a_result_fails(ompbind, path, tmp_path, options, command, code, message):
    done = ompbind("bench", *QUICK, *options, "--results", path, "--", *command, cwd=tmp_path)
    assert (done.returncode, message in one_line(done.stderr)) == (code, True)
    assert not (tmp_path / "ran").exists()
    assert os.path.exists(path) == (not message), "nothing is written before the first run"


def test_the_budget_stops_a_run_that_never_exits(ompbind, path):
    done = bench(ompbind, "--budget", "1", "--results", path, command=("sleep", "1000.25"))
    assert done.returncode == 1  # no run has succeeded
    assert read_results(path).ended.startswith("the budget of 1 s was used up while ")
    assert "0 runs and 0 warm-ups: the budget of 1 s was used up" in one_line(done.stdout)
    assert not find_processes("1000.25")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_repeated_signal_does_not_prevent_the_results(start, path, tmp_path, number):
    export = tmp_path / "export.json"
    for round_ in range(rounds(10)):
        options = ("-q", *QUICK, "--export", f"json={export}", "--results", path)
        process = start("bench", *options, "--", "sleep", "0.05")
        wait_until(lambda: count_runs(path), "a run")
        process.send_signal(number)
        time.sleep(round_ % 11 / 100)
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 128 + number
        assert "interrupted" in output
        assert json.loads(export.read_text())
        export.unlink()
        os.unlink(path)


def test_a_session_that_is_killed_resumes_until_it_is_finished(start, ompbind, path):
    command = ("sleep", "0.01025")
    for runs in (1, 4):
        process = start("bench", *QUICK, "--results", path, "--", *command)
        wait_until(lambda: count_runs(path) > runs, "another run")  # noqa: B023
        process.kill()
        process.wait()
    wait_until(lambda: not find_processes(command[1]), "all ranks are killed too")
    done = bench(ompbind, "--results", path, command=command)
    assert done.returncode == 0, done.stderr
    session = read_results(path)
    assert session.ended
    for number in range(1, 5):
        names = [run.candidate for run in session.runs if run.round == number]
        assert sorted(names) == sorted({candidate.name for candidate in session.candidates})


def test_the_known_best_value_is_found_with_the_lines_of_a_preset(ompbind, tmp_path):
    words = ("-n", "1", "--vary", "env=BLOCK=16,BLOCK=64", "--metric", "speed: ([0-9.]+)", "--higher")
    words += ("--export", f"json={tmp_path / 'a.json'}", "--")
    done = ompbind("bench", *words, sys.executable, "-S", str(EXAMPLES / "known.py"))
    session = json.loads((tmp_path / "a.json").read_text())
    results = {each["candidate"]: each for each in session["groups"][0]["comparisons"]}
    assert 1.1 < results["env=BLOCK=64"]["ratio"] < 1.3
    assert [name for name, each in results.items() if each["result"] == "best"] == ["env=BLOCK=64"]
    assert "BLOCK=64" in " ".join(session["recommended"][0]["command"])
    lines = [line.strip() for line in done.stdout.splitlines()[-3:]]
    assert lines == ["[preset.best]", "ranks = 1", 'env = { "BLOCK" = "64" }']


def test_sessions_are_compared_and_what_cannot_be_shown_or_resumed_is_an_error(tmp_path):
    first, second = map(str, (tmp_path / "1.jsonl", tmp_path / "2.jsonl"))
    for path, factor in ((first, 1.0), (second, 1.5)):
        events = list_events(make_session(dict.fromkeys(NAMES, factor)))
        Path(path).write_text("".join(f"{json.dumps(event)}\n" for event in events))
    slower = call("bench", "--fail-above", "5%", "--show", first, second)
    assert slower.returncode == 1
    assert "unbound has a ratio of 0.67, " in one_line(slower.stderr)
    shown = call("bench", "--show", first, "--fail-above", "60%", second)
    assert (shown.returncode, shown.stdout) == (0, slower.stdout)
    for words, why in (
        (("--show", "/no/such/file"), "cannot read /no/such/file: No such file or directory"),
        (("--show", __file__), "is not a results file: line 1: not JSON"),
        (("--fail-above", "5%", "--show", first), "only one session is given"),
        (("--export", "json", "--show", first, second), "several sessions are given"),
        ((*QUICK, "--results", first, "--", "true"), "has another session: processor: EPYC 9654, now"),
    ):
        done = call("bench", *words)
        assert (done.returncode, why in one_line(done.stderr)) == (2, True)


def dry_run(*words, code=0):
    done = call("bench", "--dry-run", *words, "--", "true")
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def test_a_dry_run_shows_all_candidates_and_refusals():
    text = dry_run(*FOUR_CORES, "--vary", "ranks=1,2,9", "--vary", "smt=1,2")
    assert [one_line(line) for line in text.splitlines()[1:7]] == [
        "1 rank, unbound 1 - not bound -", "1 rank, default 1 4 0-6:2 1 rank, smt=1",
        "1 rank, smt=2 1 8 0-7 -", "2 ranks, unbound 2 - not bound -",
        "2 ranks, default 2 2 0,2 | 4,6 2 ranks, smt=1", "2 ranks, smt=2 2 4 0-3 | 4-7 -",
    ]  # fmt: skip
    refused = "cannot run: 9 ranks, default; 9 ranks, smt=2: 9 ranks do not fit on 8 CPUs"
    assert refused in one_line(text)
    assert "cannot run:" in dry_run(*FOUR_CORES, "-n", "9", "--vary", "smt=2", code=1)
    for most, shown in (("10", "--budget stops after 5 min"), ("6", "to decide: --max-rounds 8 at least")):
        assert shown in one_line(dry_run(*FOUR_CORES, "--budget", "5m", "--max-rounds", most))


def test_warnings_of_plans_name_their_candidates():
    words = ("bench", "--dry-run", "--topology", "synthetic:core:2 pu:1", "--vary", "threads=1,4")
    (warning,) = call(*words, "--", "true").stderr.split("ompbind: ")[1:]
    assert re.search(r"more threads than CPUs.*\[threads=4\]", warning, re.S)
    assert call(*words, "-q", "--", "true").stderr == ""
    given = call(*words, "--", "ompbind", "exec", "--", "true").stderr  # its threads are those of `exec`
    assert "(write --vary env=OMPBIND_THREADS=1,OMPBIND_THREADS=2)" in one_line(given)


def test_a_stream_without_a_reader_stops_the_session(start):
    process = start("bench", *QUICK, "--format", "jsonl", "--", "sleep", "0.05")
    lines = [process.stdout.readline() for _ in range(3)]
    process.stdout.close()
    assert len(parse_session(lines).runs) == 2
    assert process.wait(timeout=20) not in (0, None)


SESSION = ("bench", "--vary", "bind=rank", "--max-rounds", "3")
"""A session of two candidates: the default plan has the CPUs of the varied one."""
COMMAND = ("--", "sleep", "0.05")


def run_on_terminal(columns, *options, stop_at=None):
    """Return what a session writes to a terminal of a width, and its exit code; Ctrl-C comes after a text."""
    words = shlex.join([OMPBIND, *SESSION, *options, *COMMAND])
    terminal = Terminal("sh", "-c", f"stty cols {columns}; exec {words}", term="xterm")
    process, screen, output = terminal.pid, terminal.master, b""
    with suppress(OSError):  # the terminal is closed, and everything is read
        while block := os.read(screen, 1 << 16):
            output += block
            if stop_at and stop_at in block:  # shown just before the fork
                stop_at = os.write(screen, b"\x03") != 1
            elif b"round" in block:
                assert len(os.listdir(f"/proc/{process}/task")) == 1, "threads and forks do not mix"
    os.close(screen)
    return output.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def read_lines(text, columns):
    """Return the texts that followed each other on the line, and the text after the line was removed."""
    shown, _, after = re.sub(r"\x1b\[\?25[lh]|\^C", "", text).rpartition("\r\n\r\x1b[1A\x1b[2K")
    *lines, _ = shown.split("\r\x1b[2K")  # the last is drawn again before it is removed
    assert max(map(len, lines)) < columns
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is visible"
    return lines, after


def test_a_line_is_replaced_before_each_run_and_removed_at_the_end_and_a_quiet_session_has_none():
    for columns in (40, 160):
        text, code = run_on_terminal(columns)
        lines, after = read_lines(text, columns)
        assert code == 0
        rounds = ["warm-up", "round 1/3", "round 2/3", "round 3/3"]
        assert [line.split(":")[0] for line in lines] == [each for each in rounds for _ in range(2)]
        assert bool(re.search(r"at most \d+ s left", lines[4])) == (columns == 160)
        assert after.startswith("command: sleep 0.05")
    assert run_on_terminal(80, "--quiet")[0].startswith("command: sleep 0.05")


def test_ctrl_c_reaches_all_processes_and_the_session_ends_once(tmp_path):
    """A process that is just forked must not save and show the session too."""
    for number in range(rounds(3)):
        path = tmp_path / f"{number}.jsonl"
        text, code = run_on_terminal(80, "--results", str(path), stop_at=b"round 2/3")
        assert code == -signal.SIGINT
        _, after = read_lines(text, 80)
        assert (text.count("session: "), after.count("interrupted")) == (1, 1)
        assert (read_results(str(path)).ended, path.read_text().count("interrupted")) == ("interrupted", 1)


@pytest.mark.long
def test_all_commands_of_the_pages_run(tmp_path, monkeypatch):
    """The sessions of benchmarking.md can be recorded again."""
    recorder = load_script("docs/record_sessions.py")
    monkeypatch.setenv("OMPBIND_MAX_ROUNDS", "1")
    page = "".join(path.read_text() for path in recorder.PAGES)
    recorded = recorder.record_sessions(page, tmp_path)
    blocks, old = ([*recorder.BLOCK.finditer(text)] for text in (recorded, page))
    assert [block[1] for block in blocks] == [block[1] for block in old]
    assert recorder.BLOCK.sub("", recorded) == recorder.BLOCK.sub("", page)
    assert len(blocks) == page.count("```console") >= 3
    assert all("command:" in block[0] for block in blocks if "--results" in block[1] and ">" not in block[1])
