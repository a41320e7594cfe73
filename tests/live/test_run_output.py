"""`ompbind run --output`: the output of ranks goes where the options say."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.live.conftest import OMPBIND, clean_environment, ranks_of, wait_until

RANKS = ("run", "-q", "--share", "-n", "2")
BOTH = "echo out $RANK; echo err $RANK >&2; printf half"


def test_tags(ompbind):
    done = ompbind(*RANKS, "--output", "tag", "--", "sh", "-c", BOTH)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0] half", "[0] out 0", "[1] half", "[1] out 1"]
    assert sorted(done.stderr.splitlines()) == ["[0] err 0", "[1] err 1"]


def test_times(ompbind):
    done = ompbind(*RANKS, "--output", "tag", "--timestamps", "--", "echo", "a")
    assert re.fullmatch(r"(\[[01]\] \d\d:\d\d:\d\d\.\d{3} a\n){2}", done.stdout)


@pytest.mark.parametrize("tagged", [False, True])
def test_log_files(ompbind, tmp_path, tagged):
    args = (*RANKS, "--log-dir", str(tmp_path / "a/b"), *(("--output", "tag,files") if tagged else ()))
    done = ompbind(*args, "--", "sh", "-c", BOTH)
    assert len(done.stdout.splitlines()) == (4 if tagged else 0)
    for rank in range(2):
        assert (tmp_path / f"a/b/{rank}.out").read_text() == f"out {rank}\nhalf"
        assert (tmp_path / f"a/b/{rank}.err").read_text() == f"err {rank}\n"
    again = ompbind(*args, "--", "true")
    assert again.returncode == 125
    assert "0.out and 3 more log files already exist" in " ".join(again.stderr.split())
    assert ompbind(*args, "--force", "--", "true").returncode == 0
    assert (tmp_path / "a/b/0.out").read_text() == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--log-dir", ""), "--log-dir: the name of a directory is missing"),
        (("--log-dir", "/dev/null"), "/dev/null is not a directory"),
        (("--output", "files"), "--output files needs --log-dir DIR"),
        (("--output", "inherit", "--log-dir", "logs"), "--log-dir logs has no effect with --output inherit"),
        (("--output", "tag,inherit"), "inherit cannot be combined with other modes"),
        (("--output", "tag,lines"), "'lines' is not inherit, tag or files"),
        (("--output", ""), "'' is not inherit, tag or files"),
        (("--force",), "--force needs --log-dir"),
        (("--timestamps",), "--timestamps needs --output tag"),
        (("--timestamps", "--log-dir", "logs"), "--timestamps needs --output tag"),
        (("--pty",), "--pty needs --output tag"),
        (("--pty", "--log-dir", "logs"), "--pty needs --output tag"),
    ],
)
def test_contradictory_output_options_are_refused(ompbind, tmp_path, options, said):
    done = ompbind(*RANKS, *options, "--", "touch", "started", cwd=tmp_path)
    assert done.returncode == 125
    assert said in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_the_report_may_be_in_the_log_directory(ompbind, tmp_path):
    for name, code in (("run.json", 0), ("1.out", 125), ("./1.err", 125)):
        args = (*RANKS, "--log-dir", "a/logs", "--force", "--report", f"a/logs/{name}")
        done = ompbind(*args, "--", "echo", "said", cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert (tmp_path / "a/logs/1.out").read_text() == "said\n"
    said = " ".join(done.stderr.split())
    assert "a rank writes its output there hint: choose a file" in said
    assert (tmp_path / "a/logs/run.json").stat().st_size > 0


def test_a_terminal_for_each_rank(ompbind):
    done = ompbind(
        *RANKS, "--output", "tag", "--pty", "--", "sh", "-c", "test -t 1 && tty <&1 && stty size <&1"
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len({line for line in lines if "/dev/pts/" in line}) == 2
    assert [line[4:] for line in lines if "/dev/" not in line] == ["24 80"] * 2


@pytest.mark.parametrize("way", [(), ("--pty",)])
def test_ranks_that_write_to_a_closed_reader_are_killed(start, way):
    process = start(*RANKS, "--output", "tag", *way, "--", "yes", "x" * 79)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(20) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""


def wait_for_ranks(process):
    """Wait until ranks run and their output is not read any more."""
    wait_until(lambda: ranks_of(process), "a rank")
    time.sleep(0.3)


def test_a_run_whose_output_is_not_read_can_be_stopped(start):
    process = start(*RANKS, "--grace", "0.2", "--output", "tag", "--", "yes", "x" * 79)
    wait_for_ranks(process)
    process.terminate()
    time.sleep(1)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM


@pytest.mark.parametrize("end", ["signal", "timeout"])
def test_a_stopped_run_does_not_wait_for_a_reader_that_reads_nothing(start, end):
    timeout = ("--timeout", "0.5") if end == "timeout" else ()
    process = start(*RANKS, "--grace", "0.2", *timeout, "--output", "tag", "--", "yes", "x" * 79)
    if not timeout:
        wait_for_ranks(process)
        process.terminate()
    assert process.wait(20) == (124 if timeout else 128 + signal.SIGTERM)


def test_a_slow_reader_gets_all_output_after_two_signals(start):
    script = "seq 1 100000; echo >&2; exec sleep 60"
    process = start(
        *RANKS[:-1], "1", "--grace", "0.2", "--output", "tag", "--", "sh", "-c", script, text=False
    )
    process.stderr.readline()
    process.terminate()
    time.sleep(0.2)
    process.terminate()
    out = b""
    while block := os.read(process.stdout.fileno(), 1 << 16):
        out += block
        time.sleep(0.2)
    assert out == b"".join(b"[0] %d\n" % number for number in range(1, 100001))
    assert process.wait(20) == 128 + signal.SIGTERM


def test_failures_are_reported_between_whole_lines(tmp_path):
    script = f"[ $RANK = 1 ] && sleep 0.3 && echo gone wrong >&2 && exit 3; exec yes {'x' * 79}"
    with open(tmp_path / "all", "wb") as file:
        done = subprocess.run(
            [OMPBIND, "run", "--share", "-n", "3", "--output", "tag", "--", "sh", "-c", script],
            env=clean_environment(), timeout=60,
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    assert done.returncode == 3
    lines = (tmp_path / "all").read_text().splitlines()
    others = [line for line in lines if line not in (f"[0] {'x' * 79}", f"[2] {'x' * 79}")]
    text = "\n".join(line for line in others if not re.fullmatch(r"\[[02]\] x{1,78}", line))  # cut by SIGTERM
    assert "[1] gone wrong\n" in text
    assert "exited with code 3" in text
    assert len(others) < 20


def test_log_files_on_a_full_disk_are_reported(ompbind, tmp_path):
    limited = ("sh", "-c", 'ulimit -f 200; exec "$0" "$@"')
    args = (*RANKS[:1], "-q", "--share", "--output", "tag,files", "--log-dir", str(tmp_path / "logs"))
    done = ompbind(*args, "--", "sh", "-c", f"yes {'x' * 79} | head -c 800000", before=limited)
    assert done.returncode == 125
    assert len(done.stdout) == 840_000
    stderr = " ".join(done.stderr.split())
    assert stderr.count("error: rank 0: ") == 1
    assert stderr.count("0.out: File too large") == 1


def test_lost_output_is_reported_even_at_the_end_and_if_quiet(ompbind):
    script = "setsid sleep 2 & printf half"  # an incomplete line, which is written only at the end of the run
    full = ("sh", "-c", 'exec "$0" "$@" >/dev/full')
    args = (*RANKS[:-1], "1", "--keep-descendants", "--output", "tag", "--", "sh", "-c", script)
    for _ in range(5):
        done = ompbind(*args, before=full)
        assert done.returncode == 125
        assert "error: cannot write to standard output" in " ".join(done.stderr.split())


def test_processes_that_keep_the_output_open_are_not_waited_for(ompbind, tmp_path):
    away = f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' &"
    script = f"{away} until [ -s {tmp_path}/pid ]; do sleep 0.02; done; echo said"
    begun = time.monotonic()
    done = ompbind("run", "--share", "--keep-descendants", "--output", "tag", "--", "sh", "-c", script)
    assert done.stdout == "[0] said\n"
    assert time.monotonic() - begun < 20
    os.kill(int(wait_until((tmp_path / "pid").read_text, "the pid")), signal.SIGKILL)


def test_every_run_may_have_its_own_directory(ompbind, tmp_path):
    logs, report = f"{tmp_path}/{{run_id}}/logs", f"{tmp_path}/{{run_id}}/run.json"
    for name in ("night", "day"):
        (tmp_path / name).mkdir()
        args = ("--log-dir", logs, "--report", report, "--run-id", name)
        assert ompbind(*RANKS, *args, "--", "echo", name).returncode == 0
        assert (tmp_path / name / "logs/1.out").read_text() == f"{name}\n"
        assert json.loads((tmp_path / name / "run.json").read_text())["run_id"] == name
