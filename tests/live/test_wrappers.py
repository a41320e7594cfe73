"""Wrappers in a command: each warning is true for the real program, and is printed before it starts."""

import re

import pytest

from tests.live.conftest import one_line, required, two_cpus

MASK = ("grep", "Cpus_allowed_list", "/proc/self/status")


def mask_of(done):
    return re.search(r"Cpus_allowed_list:\s*(\S+)", done.stdout)[1]


def test_taskset_replaces_the_mask_as_the_warning_says(ompbind):
    first, second = map(str, two_cpus())
    wrapper = [required("taskset"), "-c", second]
    text = f"taskset -c {second} replaces the affinity mask of its rank"
    for words in (("--", *wrapper), ("--wrap", " ".join(wrapper), "--")):
        done = ompbind("run", "-m", first, *words, *MASK)
        assert (mask_of(done), text in one_line(done.stderr)) == (second, True)
    refused = ompbind("run", "-m", first, "--strict", "--", *wrapper, *MASK)
    assert (refused.returncode, refused.stdout, text in one_line(refused.stderr)) == (125, "", True)
    same = ompbind("run", "-m", second, "--strict", "--", *wrapper, *MASK)
    assert (same.returncode, same.stderr, mask_of(same)) == (0, "", second)
    assert text in one_line(ompbind("exec", "-m", first, "--", *wrapper, "true").stderr)


@pytest.mark.two_cpus
def test_env_removes_variables_as_the_warning_says_and_other_wrappers_are_not_mentioned(ompbind):
    done = ompbind("run", "--", "env", "-i", required("printenv"), "RANK")
    assert (done.stdout, "ompbind: warning: env -i " in one_line(done.stderr)) == ("", True)
    for command in ("env FOO=1 nice true", "taskset -p 1", "numactl --show"):
        required(command.split()[0])
        done = ompbind("run", "--", *command.split())
        assert (done.returncode, done.stderr) == (0, ""), command
