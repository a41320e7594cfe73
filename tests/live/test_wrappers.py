"""Wrappers in a command: each warning is true for the real program, and is printed before it starts."""

import json
import subprocess

import pytest

from tests.live.conftest import required, two_cpus


def mask_of(done):
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("Cpus_allowed_list"))
    return line.split()[1]


def warnings(done):
    return " ".join(done.stderr.split())


def test_taskset_replaces_the_mask_as_the_warning_says(ompbind):
    first, second = two_cpus()
    command = [required("taskset"), "-c", str(second), "cat", "/proc/self/status"]
    done = ompbind("run", "-m", str(first), "--", *command)
    assert mask_of(done) == str(second)
    assert f"taskset -c {second} replaces the affinity mask of its rank" in warnings(done)
    refused = ompbind("run", "-m", str(first), "--strict", "--", *command)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "replaces the affinity mask" in warnings(refused)
    same = ompbind("run", "-m", str(second), "--strict", "--", *command)
    assert (same.returncode, same.stderr, mask_of(same)) == (0, "", str(second))


@pytest.mark.parametrize("options", [["-C", "{second}"], ["-N", "0"]])
def test_numactl_replaces_the_mask_as_the_warning_says(ompbind, options):
    first, second = two_cpus()
    numactl = required("numactl")
    words = [word.format(second=second) for word in options]
    if subprocess.run([numactl, *words, "true"], capture_output=True, timeout=20).returncode:
        pytest.skip("numactl cannot bind here")
    done = ompbind("run", "-m", str(first), "--", numactl, "-a", *words, "cat", "/proc/self/status")
    assert mask_of(done) != str(first)
    assert "replaces the affinity mask of its rank" in warnings(done)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-i"], "OMP_PLACES", None),
        (["-i"], "RANK", None),
        (["-u", "OMP_PLACES", "-u", "OMP_PROC_BIND"], "OMP_PLACES", None),
        (["OMP_NUM_THREADS=9"], "OMP_NUM_THREADS", "9"),
    ],
)
def test_env_changes_variables_as_the_warning_says(ompbind, words, name, value):
    options = ["-m", ",".join(map(str, two_cpus())), "--bind", "thread"]
    done = ompbind("run", *options, "--", "env", *words, required("printenv"), name)
    assert done.stdout.strip() == (value or "")
    assert f"ompbind: warning: env {' '.join(words)} " in warnings(done)


def test_wrappers_that_change_nothing_are_not_mentioned(ompbind):
    for command in (
        ["env", "FOO=1", "true"],
        ["taskset", "-p", "1"],
        ["nice", "true"],
        ["numactl", "--show"],
    ):
        required(command[0])
        done = ompbind("run", "--", *command)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_plan_exec_and_doctor_warn_too(ompbind):
    first, second = two_cpus()
    command = ["--", required("taskset"), "-c", str(second), "true"]
    text = f"taskset -c {second} replaces the affinity mask of its rank"
    assert f"warning: {text}" in " ".join(ompbind("plan", "-m", str(first), *command).stdout.split())
    assert text in warnings(ompbind("exec", "-m", str(first), *command))
    found = json.loads(ompbind("doctor", "--format", "json", *command).stdout)["findings"]
    (issue,) = (issue for issue in found if issue["check"] == "wrappers")
    assert issue["found"] == f"the command has 'taskset -c {second}'"
