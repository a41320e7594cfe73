"""Placeholders, files of variables, the directory and the wrapper of real ranks, with `run` and `exec`."""

import json
import os
import sys

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import one_line, two_cpus, write_program
from tests.live.test_exec import OPEN_MPI

TWO = ("run", "-n", "2", "--share")


def lines(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_files_of_variables_come_before_env(ompbind, tmp_path):
    (tmp_path / "{rank}").write_text('# ports\nA={rank+1}\nB="b"\n\nHERE\nMISSING\nC=file\n')
    (tmp_path / "second").write_text("A={rank+2}\n")
    files = ("--env-file", "{rank}", "--env-file", "second", "--env", "C=env", "--env", 'CFG={"a":1}')
    show = ("sh", "-c", 'echo "$A $B $C $HERE $CFG ${MISSING-}"')
    done = ompbind("run", *files, "--", *show, cwd=tmp_path, env={"HERE": "{rank} {foo}"})
    assert lines(done) == ['2 "b" env {rank} {foo} {"a":1} ']


def test_errors_in_files_of_variables_name_file_and_line(tmp_path):
    path = tmp_path / "f"
    for content, text in (
        (None, "f: No such file or directory"), (b"A=1\n" * 300_000, "f is larger than 1 MiB"),
        (b"A=1\nexport B=1\n", "f, line 2: 'export B' is not the name of a variable"),
        (b"A=1\nB=\xff\n", "f, line 2: the text is not UTF-8"),
    ):  # fmt: skip
        if content:
            path.write_bytes(content)
        for verb in ("run", "exec"):
            done = call(verb, "--env-file", str(path), "--", "echo", "started")
            assert (done.returncode, done.stdout, text in one_line(done.stderr)) == (125, "", True)


def test_the_command_is_filled_only_with_fill(ompbind):
    words = ("{rank+1}/{size}", "{foo}", "{{rank}}", "${rank}", "{run_id}")
    done = ompbind(*TWO, "--run-id", "r", "--fill", "--", "echo", *words)
    assert lines(done) == ["1/2 {foo} {rank} ${rank} r", "2/2 {foo} {rank} ${rank} r"]
    for verb in ("run", "exec"):
        done = ompbind(verb, "--", "echo", *words)
        assert lines(done) == [" ".join(words)]
        assert "warning: {rank+1}, {size} and {run_id} in the command stay unfilled" in one_line(done.stderr)
    for options, is_warned in (((), True), (("--fill",), False), (("--no-fill",), False), (("-q",), False)):
        done = call("bench", "--dry-run", *options, "--", "true", "{rank}")
        assert (done.returncode, "unfilled (--fill fills" in one_line(done.stderr)) == (0, is_warned)
        assert is_warned or not done.stderr


@pytest.mark.no_quota
def test_each_rank_starts_in_its_own_directory(ompbind, tmp_path):
    for rank in range(2):
        (tmp_path / f"work/{rank}").mkdir(parents=True)
        write_program(tmp_path / f"work/{rank}/app", "pwd -P > $OUT")
    options = ("--chdir", "work/{rank}", "--log-dir", "l{run_id}", "--report", "{{run_id}}.json")
    done = ompbind(*TWO, "--run-id", "x", *options, "--env", "OUT=here", "--", "./app", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for rank in range(2):
        assert (tmp_path / f"work/{rank}/here").read_text() == f"{tmp_path}/work/{rank}\n"
        assert (tmp_path / f"lx/{rank}.out").exists()
    record = json.loads((tmp_path / "{run_id}.json").read_text())
    assert [rank["directory"] for rank in record["ranks"]] == ["work/0", "work/1"]
    done = ompbind("run", "-n", "3", "--share", "--chdir", "work/{rank}", "--", "touch", "x", cwd=tmp_path)
    assert done.returncode == 125
    assert "rank 2: cannot change to directory work/2: No such file or directory" in one_line(done.stderr)
    assert "mkdir -p work/2" in one_line(done.stderr)
    assert not (tmp_path / "work/0/x").exists()


@pytest.mark.two_cpus
def test_exec_fills_wraps_and_changes_the_directory(ompbind, tmp_path):
    (tmp_path / "d0").mkdir()
    (tmp_path / "env").write_text("A={rank+1}")
    options = ("--env-file", "env", "--chdir", "d{local_rank}", "--fill", "--wrap", "env B={size}")
    script = "echo {rank} $A $B; pwd -P"
    done = ompbind("exec", *options, "--", "sh", "-c", script, cwd=tmp_path)
    assert done.stdout == f"0 1 1\n{tmp_path}/d0\n"
    job = ompbind("exec", "--fill", "--wrap", "echo", "--", "{rank}/{size} {local_rank}", env=OPEN_MPI)
    assert job.stdout == "3/4 1\n"
    missing = ompbind("exec", "--chdir", "d1", "--", "true", cwd=tmp_path)
    assert (missing.returncode, "mkdir -p d1" in one_line(missing.stderr)) == (125, True)


SHOW = 'echo $RANK wraps with $LD_PRELOAD on $(grep Cpus_allowed_list /proc/self/status); exec "$@"'
"""What a wrapper of the tests runs: it shows its variables and its mask, and becomes the command."""


def test_a_wrapper_has_the_cpus_and_variables_of_its_rank(ompbind, library):
    first, second = two_cpus()
    options = ("--preload", library, "-m", f"{first}|{second}", "--wrap", f"sh -c '{SHOW}' wrapper-{{rank}}")
    done = ompbind("run", "-n", "2", *options, "--", "sh", "-c", "echo $RANK runs $LD_PRELOAD")
    assert lines(done) == [
        f"0 runs {library}", f"0 wraps with {library} on Cpus_allowed_list: {first}", f"1 runs {library}",
        f"1 wraps with {library} on Cpus_allowed_list: {second}",
    ]  # fmt: skip
    only = 'sh -c \'test {rank} = 1 && exec echo wrapped "$@"; exec "$@"\' sh'
    done = ompbind(*TWO, "--wrap", only, "--", "echo", "a  b")
    assert lines(done) == ["a  b", "wrapped echo a  b"]


def test_detection_reads_the_filled_command_behind_any_wrapper_in_its_directory(ompbind, tmp_path):
    (tmp_path / "work").mkdir()
    os.symlink(sys.executable, tmp_path / "work/python3.0")
    write_program(tmp_path / "wrapper", 'shift; exec "$@"')
    wrap = f"{tmp_path}/wrapper profile"
    options = ("--wrap", wrap, "--chdir", "work", "--fill", "--report", "-")
    done = ompbind("run", *options, "--", "./python3.{rank}", "-c", "", cwd=tmp_path)
    record = json.loads(done.stdout)
    assert record["plan"]["workload"]["python"] == str(tmp_path / "work/python3.0")
    assert record["command"] == ["./python3.{rank}", "-c", ""]
    assert record["ranks"][0]["command"] == [f"{tmp_path}/wrapper", "profile", "./python3.0", "-c", ""]


@pytest.mark.two_cpus
def test_the_plan_shows_what_was_filled(ompbind, tmp_path):
    for rank in range(3):
        (tmp_path / f"d{rank}").mkdir()
    options = ("--env", "PORT={rank+8000}", "--env", "API_KEY=k{rank}", "--chdir", "d{rank}", "--wrap", "env")
    done = ompbind(*TWO, "-v", *options, "--", "true", cwd=tmp_path)
    assert done.returncode == 0
    table = "command of every rank: env true\n\nrank  PORT  directory\n   0  8000  d0\n   1  8001  d1\n"
    assert table in done.stdout + done.stderr
    env = {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "2"}
    command = ("--fill", *options, "--", "echo", "{rank}")
    assert "command of rank" not in ompbind("exec", "--dry-run", "--", "true", env=env).stdout
    shown = "PORT of rank 2: 8002\ndirectory of rank 2: d2\ncommand of rank 2: env echo 2\n"
    assert ompbind("exec", "--dry-run", *command, cwd=tmp_path, env=env).stdout.endswith(shown)
