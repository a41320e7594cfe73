"""Wrappers in a command: each warning is true for the real program, and is printed before it starts."""

import os
import re
import subprocess

import pytest

from tests.live.conftest import one_line, required, two_cpus, wait_until, write_program
from tests.tables import rows

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


@pytest.mark.two_cpus
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: sudo and su ask for no password")
@pytest.mark.parametrize(("prefix", "warning", "reaches"), rows("""
    sudo -n              | sudo -n removes variables | CPUs
    sudo -n -E           |                           | CPUs, variables
    su -c                |                           | CPUs, variables
    su - -c              | su - removes variables    | CPUs
    runuser -u root --   |                           | CPUs, variables
    screen -D -m         |                           | CPUs, variables
    tmux -L {name} new -d | hands the program to another process |
"""))  # fmt: skip
def test_what_reaches_a_program_that_another_process_starts(ompbind, tmp_path, prefix, warning, reaches):
    words, seen, (first, _) = prefix.format(name=tmp_path.name).split(), tmp_path / "seen", two_cpus()
    required(words[0])
    script = f"(grep Cpus_allowed_list /proc/self/status; env) >{seen}.new; mv {seen}.new {seen}"
    app = write_program(tmp_path / "app", script)
    tmux = words[:3] if words[0] == "tmux" else ["true"]
    subprocess.run([*tmux, "new", "-d", "sleep 60"], check=True)
    try:
        done = ompbind("run", "-m", str(first), "--", *words, app)
        wait_until(seen.exists, "the file of the program")
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    text, found = seen.read_text(), []
    found += ["CPUs"] if f"Cpus_allowed_list:\t{first}\n" in text else []
    found += ["variables"] if "\nOMP_NUM_THREADS=" in text else []
    assert ", ".join(found) == reaches
    assert (warning in one_line(done.stderr)) if warning else not done.stderr
