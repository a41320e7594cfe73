"""`--plan FILE`: runs and ranks of launchers with a plan that was made before."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import two_cpus
from tests.live.test_exec import MPICH, REPORT

SHOW = ["--", sys.executable, "-c", REPORT]


@pytest.fixture
def save(tmp_path):
    """Write the plan of a command line of `plan` to a file, and return its path."""

    def write(*words):
        done = call("plan", *words, "--format", "json")
        assert done.returncode == 0, done.stderr
        path = tmp_path / "plan.json"
        path.write_text(done.stdout)
        return str(path)

    return write


def read_reports(done):
    assert done.returncode == 0, done.stderr
    reports = map(json.loads, done.stdout.splitlines())
    return sorted(reports, key=lambda report: int(report["RANK"]))


def test_ranks_get_the_cpus_of_the_plan(ompbind, save):
    first, second = two_cpus()
    path = save("-n", "2", "-m", f"{second}|{first}", "--bind", "exact")
    reports = read_reports(ompbind("run", "--plan", path, *SHOW))
    assert [report["cpus"] for report in reports] == [[second], [first]]
    reports = read_reports(ompbind("run", "-n", "2", *SHOW, env={"OMPBIND_PLAN": path}))
    assert [report["cpus"] for report in reports] == [[second], [first]]
    for rank, cpus in enumerate(([second], [first])):
        env = {**MPICH, "PMI_RANK": str(rank), "MPI_LOCALRANKID": str(rank)}
        (report,) = read_reports(ompbind("exec", "--plan", path, *SHOW, env=env))
        assert (report["LOCAL_RANK"], report["cpus"]) == (str(rank), cpus)


def test_a_plan_from_standard_input(ompbind, save):
    path = Path(save("-n", "2", "-m", "|".join(map(str, reversed(two_cpus())))))
    options = {"input": path.read_text(), "stdin": None}
    done = ompbind("run", "--plan", "-", "--", "sh", "-c", "echo $OMPBIND_CPUS; cat", **options)
    assert sorted(map(int, done.stdout.split())) == sorted(two_cpus())
    done = ompbind("run", "--plan", "-", "--", "true")
    assert "--plan: standard input is empty hint:" in " ".join(done.stderr.split())


def test_a_rank_that_its_launcher_has_bound_needs_only_its_own_cpus(ompbind, save):
    first, second = two_cpus()
    path = save("-n", "2", "-m", f"{first}|{second}")
    before = ["taskset", "-c", str(second)]
    (report,) = read_reports(ompbind("exec", "--plan", path, *SHOW, env=MPICH, before=before))
    assert report["cpus"] == [second]
    env = {**MPICH, "PMI_RANK": "0", "MPI_LOCALRANKID": "0"}
    done = ompbind("exec", "--plan", path, *SHOW, env=env, before=before)
    assert done.returncode == 125
    assert f"CPU {first} of" in done.stderr
    assert f"to CPU {second}; --plan can only give them these CPUs" in " ".join(done.stderr.split())


def test_variables_in_the_file_have_no_effect(ompbind, save):
    path = Path(save("-n", "1", "-m", str(two_cpus()[0])))
    data = json.loads(path.read_text())
    data["ranks"][0]["env"] = {"LOCAL_RANK": "7", "OMP_NUM_THREADS": "99", "LD_PRELOAD": "/tmp/x.so"}
    data["workload"] = {"preload": ["/tmp/x.so"]}
    path.write_text(json.dumps(data))
    done = ompbind("run", "--plan", str(path), *SHOW)
    (report,) = read_reports(done)
    assert (report["LOCAL_RANK"], report["OMPBIND_NUM_THREADS"], done.stderr) == ("0", "1", "")


@pytest.mark.two_cpus
def test_the_report_of_a_run_names_the_plan_and_options_of_lower_levels_give_way(ompbind, save, tmp_path):
    path = save("-n", "2")
    report = tmp_path / "run.json"
    env = {"OMPBIND_RANKS": "7", "OMPBIND_STRATEGY": "spread", "OMPBIND_AVOID": "1"}
    done = ompbind("run", "-v", "--plan", path, "--report", str(report), *SHOW, env=env)
    assert len(done.stdout.splitlines()) == 2, done.stderr
    assert "OMPBIND_STRATEGY=spread is not used with --plan" in done.stderr
    assert "OMPBIND_RANKS=7 is not used:" in done.stderr
    plan = json.loads(report.read_text())["plan"]
    assert (plan["request"]["plan"], plan["reasons"][0]["about"]) == (path, "plan")


@pytest.mark.two_cpus
@pytest.mark.parametrize(
    ("verb", "words", "text"),
    [
        ("run", "-n 3", "-n 3: PLAN is a plan for 2 ranks"),
        ("run", "-m 0", "--plan cannot be used with --mask 0"),
        ("run", "--devices gpu", "cannot be used with --devices gpu"),
        ("run", "--avoid", "cannot be used with --avoid"),
        ("exec", "", "PLAN is a plan for 2 ranks, but this machine has 1 rank of the job"),
        ("exec", "--memory bind", "cannot be used with --memory bind"),
    ],
)
def test_options_that_contradict_the_plan_are_errors(save, verb, words, text):
    path = save("-n", "2")
    done = call(verb, "--plan", path, *words.split(), "--", "true")
    assert done.returncode == 125
    assert "".join(text.replace("PLAN", path).split()) in "".join(done.stderr.split())


DUAL = ("--topology", "synthetic:pack:2 numa:1 l3:2 core:4 pu:2")


def test_a_plan_for_another_machine_is_refused(save):
    path = save("-n", "2", *DUAL)
    done = call("run", "--plan", path, "--", "true")
    assert done.returncode == 125
    assert "is a plan for another machine" in " ".join(done.stderr.split())
    assert call("run", "--dry-run", *DUAL, "--plan", path, "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b" \n", "plan.json is empty hint: name a file with"),
        (b'{"schema": 1,\n"x" 2}', "line 2, column 5: expecting ':' delimiter"),
        (b"\n\xff{}", "line 2: the text is not UTF-8"), (b"[" * 200000, "a value is too long or too deep"),
        (b'{"schema": ' + b"9" * 9999 + b"}", "a value is too long or too deep"),
        (b"[]", "is not a plan: the file is not an object"),
        (b'{"schema":"ompbind-topo/1"}', "schema is 'ompbind-topo/1'"), (None, "No such file or directory"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_plan_is_an_error_with_its_position(tmp_path, content, text):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content)
    done = call("run", "--plan", str(path), "--", "true")
    assert done.returncode == 125
    assert "".join(text.split()) in "".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_plan_is_shown_and_exported_as_it_was_made(save):
    request = ("-n", "2", "--bind", "core", "--memory", "bind")
    path = save(*request, *DUAL)
    for words in (["--format", "slurm"], ["--format", "sh", "--rank", "1"], ["--format", "numactl"]):
        shown = call("plan", "--plan", path, *DUAL, *words)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout == call("plan", *request, *DUAL, *words).stdout
    done = call("plan", "--plan", path, "--compare", "balanced,spread", *DUAL)
    assert "--plan cannot be used with --compare" in " ".join(done.stderr.split())
