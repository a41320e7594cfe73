"""The report of `run`: runs that fail before they start, signals, and pipes."""

import json
import os
import signal
import time

import pytest

from ompbind.cli.report_file import prepare_report, write_report
from ompbind.errors import LaunchError
from tests.cli.command_lines import call
from tests.live.conftest import one_line, ranks_of, wait_until
from tests.long import rounds

OLD = '{\n  "schema": "ompbind-run/1",\n  "exit_code": 0\n}\n'
"""The report of an earlier run."""


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "run=1.json"
    path.write_text(OLD)
    return path


def test_a_run_that_fails_before_it_starts_replaces_the_report(tmp_path, report, ompbind):
    done = ompbind("run", f"--report={report}", "--run-id", "night", "-m", "9999", "--", "true")
    record = json.loads(report.read_text())
    assert done.returncode == record["exit_code"] == 125
    assert "CPU 9999 does not exist" in record["error"] in one_line(done.stderr)
    assert (record["run_id"], record["plan"], record["command"]) == ("night", None, ["true"])
    assert os.listdir(tmp_path) == ["run=1.json"]


@pytest.mark.parametrize(("options", "command"), [
    ("", "/no/such"), ("--verify=strict", "./no-such"), ("--log-dir=.", "no-such"), ("", "./text"),
    ("--avoid --wait=9", "no-such"), ("-n 2", "./empty"),
])  # fmt: skip
def test_a_command_that_cannot_be_executed_leaves_no_report(tmp_path, report, ompbind, options, command):
    (tmp_path / "text").write_text("text")
    (tmp_path / "empty").write_bytes(b"\0")
    (tmp_path / "empty").chmod(0o755)
    done = ompbind("run", f"--report={report}", *options.split(), "--", command, cwd=tmp_path)
    assert done.returncode == (127 if "no" in command else 126), done.stderr
    assert sorted(os.listdir(tmp_path)) == ["empty", "text"]


PROGRAM = "#!/bin/sh\necho up\n"


@pytest.mark.parametrize(("line", "kept"), [
    ("run -n 2 --report ./file 2", True), ("run -m 9999 --report file ./file", True),
    ("run --report file --log-dir . true", True), ("run --report notes true", True),
    ("run --report empty-program true", True), ("run --report empty true", False),
    ("run --force --report notes true", False), ("bench -q --max-rounds 1 --export json=file true", True),
    ("bench -q --max-rounds 1 --export csv=notes true", True),
    ("bench -q --max-rounds 1 --export svg=notes --export csv=empty --force true", False),
    ("bench -q --max-rounds 1 --results file true", True),
])  # fmt: skip
def test_only_files_of_its_own_kind_are_replaced_without_force(tmp_path, ompbind, line, kept):
    files = {"file": PROGRAM, "notes": "name,age\n", "empty": "", "empty-program": ""}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755 if text == PROGRAM or "program" in name else 0o644)
    for _ in range(2):  # its own file is replaced too
        done = ompbind(*line.split(), cwd=tmp_path)
        assert (done.returncode == 0, done.stdout == "") == (not kept, kept or "run" in line), done.stderr
    same = {name: (tmp_path / name).read_text() for name in files} == files
    assert same == kept
    assert not kept or "choose another file" in one_line(done.stderr) or "not a results file" in done.stderr


@pytest.mark.parametrize("args", [
    ["--env", "PORT", "--", "true"], ["--timestamps", "--", "true"], ["--share", "--avoid", "--", "true"],
    ["-t", "0", "--", "true"], ["--bogus", "5", "true", "--report", "of-the-command"], [],
])  # fmt: skip
def test_a_refused_command_line_removes_the_report_of_an_earlier_run(tmp_path, monkeypatch, report, args):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "of-the-command"
    for words, env in (
        ([f"--report={report}", *args], {}),
        (["--report", str(report), *args], {}),
        (args, {"OMPBIND_REPORT": str(report)}),
    ):
        report.write_text(OLD)
        other.write_text(OLD)
        assert call("run", "--dry-run", *words, **env).returncode == 125
        assert report.exists()
        assert call("run", *words, **env).returncode == 125
        assert os.listdir(tmp_path) == ["of-the-command"]
    for text in ("print(1)\n", ""):
        report.write_text(text)
        assert call("run", "--report", str(report)).returncode == 125
        assert report.read_text() == text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_repeated_signal_does_not_prevent_the_report(start, tmp_path, number):
    """Some programs signal a process and then its group: 0 to 100 ms later."""
    path = tmp_path / "run.json"
    for round_ in range(rounds(50)):
        process = start("run", "-q", "--share", "-n", "2", "--report", str(path), "--", "sleep", "30")
        wait_until(lambda at=process: len(ranks_of(at)) == 2, "two ranks")
        process.send_signal(number)
        time.sleep(round_ % 11 / 100)
        process.send_signal(number)
        process.wait(10)
        assert (process.returncode, json.loads(path.read_text())["exit_code"]) == (128 + number, 128 + number)
        assert os.listdir(tmp_path) == ["run.json"]
        path.unlink()


def test_a_pipe_without_a_reader_is_an_error(ompbind, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    done = ompbind("run", "--report", str(pipe), "--", "sh", "-c", "echo up; exit 5")
    assert (done.returncode, done.stdout) == (5, "up\n")
    assert "no process has opened this pipe for reading" in one_line(done.stderr)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(LaunchError, match=r"has read nothing for \d s"):
        write_report(prepare_report(str(pipe)), "x" * 200_000)
    os.close(reader)


def test_a_device_that_cannot_be_opened_is_an_error_at_once(ompbind):
    options = {"start_new_session": True, "timeout": 10}
    done = ompbind("run", "--report", "/dev/tty", "--", "echo", "up", **options)
    assert (done.returncode, done.stdout) == (125, "")
    assert "this device cannot be opened" in one_line(done.stderr)
