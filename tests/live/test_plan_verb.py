"""`ompbind plan` and `ompbind topo`: formats, terminals, pipes."""

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_lines import call
from tests.live.conftest import OMPBIND, one_line, required, run_program, two_cpus
from tests.machines import Shape, write_tree

EXTRA = 'it\'s\n two "lines" $HOME `x` \\ *'
DUMP = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def dual(tmp_path, monkeypatch):
    """A recorded machine: 2 packages of 4 cores with 2 threads; its name is short."""
    monkeypatch.chdir(tmp_path)
    write_tree(tmp_path / "dual", Shape(packages=2, cores=4, smt=2))
    return "dual"


def test_a_binding_mode_that_is_chosen_is_kept_on_isolated_cpus(tmp_path):
    tree = write_tree(tmp_path / "tree", Shape(cores=4), {"sys/devices/system/cpu/isolated": "1-3"})
    for words, variable, bind in (("", "", "thread"), ("--bind rank", "", "rank"), ("", "rank", "rank"),
                                  ("--no-bind", "none", "thread")):  # fmt: skip
        options = ["--topology", str(tree), "--format", "json", "-m", "1-3", *words.split()]
        made = json.loads(call("plan", *options, OMPBIND_BIND=variable).stdout)
        assert made["request"]["bind"] == bind


@pytest.mark.two_cpus
@pytest.mark.parametrize("name", ["bash", "dash", "zsh"])
def test_sh_format_sets_the_environment_that_run_sets(ompbind, name):
    options = ["-n", "2", "--run-id", "same", "--env", f"WORDS={EXTRA}", "--env", "WHO={rank} of {size}"]
    inherited = {"GOMP_CPU_AFFINITY": "0", "OMP_DYNAMIC": "true", "KEEP": "me", "HOME": "/"}  # zsh sets HOME
    text = ompbind("plan", *options, "--format", "sh", "--rank", "1", env=inherited).stdout
    code = 'eval "$1"; exec python -c "$2"'
    done = run_program(required(name), "-c", code, "sh", text, DUMP, env=inherited)
    assert done.returncode == 0, done.stderr
    script = f"[ $RANK = 1 ] || exit 0; exec python -c '{DUMP}'"
    started = ompbind("run", *options, "--", "sh", "-c", script, env=inherited)
    shells_own = {"_", "PWD", "OLDPWD", "SHLVL", "LOGNAME"}
    evaluated, run = (
        {name: value for name, value in json.loads(process.stdout).items() if name not in shells_own}
        for process in (done, started)
    )
    assert evaluated == run
    assert run["WORDS"] == EXTRA
    assert run["WHO"] == "1 of 2"


def test_the_machine_of_a_plan_can_be_piped_in(ompbind, dual):
    shown = call("plan", "-n", "2", "--topology", dual).stdout
    topo = call("topo", "--format", "json", "--topology", dual).stdout
    done = ompbind("plan", "-n", "2", "--topology", "/dev/stdin", stdin=None, input=topo)
    assert done.stdout == shown.replace(dual, "/dev/stdin") != ""


def test_containers_of_groups_get_their_part_of_the_quota(dual, tmp_path):
    topo = json.loads(call("topo", "--format", "json", "--topology", dual).stdout)
    (tmp_path / "limited.json").write_text(json.dumps({**topo, "quota_cpus": 3}))
    groups = shlex.split("--name a -c 5 -- x : --name b -c 1 -- y")
    for name, options, shown in (
        ("docker", [], "--cpus=2.5 --cpus=0.5"), ("docker", ["--rank", "1"], "--cpus=0.5"),
        ("compose", [], "services: cpus: 2.5 cpus: 0.5"),
    ):  # fmt: skip
        done = call("plan", "--topology", str(tmp_path / "limited.json"), "--format", name, *options, *groups)
        found = re.findall(r"--cpus=[\d.]+|services:|\bcpus: [\d.]+", done.stdout)
        assert " ".join(found) == shown, done.stderr
    assert call("plan", "--format", "k8s").stdout == call("plan", "--format", "kubernetes").stdout


def test_in_kubernetes_without_limits_a_note_says_that_a_request_gives_no_cpus(ompbind, quota):
    env, note = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "request without a limit gives no CPUs of its own"
    for options, is_told in (((), True), (("-t", "1"), False), (("--topology", "sample:epyc-2p"), False)):
        shown = one_line(ompbind("plan", *options, env=env).stdout)
        assert (note in shown, "requests.cpu" in shown) == (is_told, is_told)
    assert note not in one_line(ompbind("plan", env=env, before=quota(1)).stdout)


def test_a_picture_in_a_pipe_needs_only_the_characters_of_its_encoding(ompbind):
    args = ("plan", "-n", "2", "--format", "picture", "--topology", "synthetic:numa:2 core:1600 pu:1")
    for encoding, times in (("latin-1", "x"), ("utf-8", "\N{MULTIPLICATION SIGN}")):
        done = ompbind(*args, env={"PYTHONIOENCODING": encoding, "COLUMNS": "40"}, encoding=encoding)
        assert f"\nNUMA node 1 (1.0 GiB)  1{times}1600\n" in done.stdout


def on_terminal(columns, *args, **env):
    """Return what ompbind writes to a terminal with this number of columns."""
    command, env = f"stty cols {columns}; {shlex.join([OMPBIND, *args])}", {"NO_COLOR": "", **env}
    done = run_program(required("script"), "-qec", command, "/dev/null", env=env, encoding="utf-8")
    return done.stdout.replace("\r\n", "\n")


@pytest.mark.parametrize(("columns", "widest"), [(0, 80), (60, 60), (160, 160), (400, 200)])
def test_tables_and_messages_use_the_width_of_the_terminal(columns, widest):
    source = "synthetic:pack:2 core:40 pu:2"
    args = ("-n", "2", "--bind", "thread", "--topology", source)
    shown = on_terminal(columns, "plan", *args, TERM="dumb")
    assert widest - 15 < max(map(len, shown.splitlines())) <= widest
    message = on_terminal(columns, "plan", "-n", "2", "-m", "x" + ",1000" * 60, "--topology", source)
    assert widest / 2 < max(map(len, message.splitlines())) <= widest


@pytest.mark.parametrize(("env", "is_coloured"), [
    ({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False),
])  # fmt: skip
def test_terminals_show_colours_unless_disabled(dual, env, is_coloured):
    shown = on_terminal(80, "plan", "-n", "2", "--format", "picture", "--topology", dual, **env)
    assert "rank 1: CPUs 4-7" in shown
    assert ("\033[" in shown) == is_coloured


def test_a_reader_that_closes_the_pipe_causes_no_error_message(ompbind):
    read_end, write_end = os.pipe()
    os.close(read_end)
    settings = {"capture_output": False, "stdout": write_end, "stderr": subprocess.PIPE}
    done = ompbind("topo", "--format", "json", **settings)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


def test_the_error_about_a_cpu_says_what_excludes_it(ompbind, cgroup):
    first, other = two_cpus()
    confine = (required("taskset"), "-c", str(first))

    def explain(*before):
        return one_line(ompbind("run", "-m", str(other), "--", "true", before=before).stderr)

    own = rf"CPU {other} is not allowed: the affinity mask of this process.* excludes CPUs? \S+; "
    assert re.search(rf"{own}its parent \(PID {os.getpid()}, \S+\) has (all|the mask) ", explain(*confine))
    in_shell = explain(*confine, "sh", "-c", '"$@"; exit $?', "sh")
    assert re.search(rf"{own}its parent \(PID \d+, sh\) has the same mask", in_shell)
    nodes = re.search(r"Mems_allowed_list:\t(.*)", Path("/proc/self/status").read_text())[1]
    both = ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup")  # by version of cgroups
    directory, before = cgroup(dict.fromkeys(both, ("cpuset.mems", nodes)))
    (directory / "cpuset.cpus").write_text(str(first))
    assert f"CPU {other} is not allowed: the cpuset cgroup {directory} excludes CPU" in explain(*before)
