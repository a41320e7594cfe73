"""`ompbind plan`, `ompbind topo`, and the help of every verb."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ompbind.cli.verbs import VERBS
from ompbind.machine.sources.reading import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.diagram.terminal import render_picture
from ompbind.report.export.formats import FORMATS
from ompbind.report.text import Screen
from ompbind.report.topology import render_json
from tests.live.conftest import OMPBIND, clean_environment, required
from tests.machines import Shape, make_machine, write_tree

EXTRA = 'it\'s\n two "lines" $HOME `x` \\ *'
DUMP = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture(scope="module")
def dual():
    """Write a recorded machine: 2 packages of 4 cores with 2 threads; its path fits in one line."""
    with tempfile.TemporaryDirectory() as directory:
        yield str(write_tree(Path(directory), Shape(packages=2, cores=4, smt=2)))


@pytest.mark.parametrize("name", ["bash", "dash", "zsh"])
def test_sh_format_sets_the_environment_that_run_sets(ompbind, name):
    options = ["-n", "2", "--run-id", "same", "--env", f"WORDS={EXTRA}", "--env", "WHO={rank} of {size}"]
    inherited = {"GOMP_CPU_AFFINITY": "0", "OMP_DYNAMIC": "true", "KEEP": "me"}
    text = ompbind("plan", *options, "--format", "sh", "--rank", "1", env=inherited).stdout
    code = f'eval "$1"; exec {sys.executable} -c "$2"'
    done = subprocess.run(
        [required(name), "-c", code, "sh", text, DUMP],
        env=clean_environment(**inherited), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    script = f"[ $RANK = 1 ] || exit 0; exec {sys.executable} -c '{DUMP}'"
    started = ompbind("run", *options, "--", "sh", "-c", script, env=inherited)
    shells_own = {"_", "PWD", "OLDPWD", "SHLVL", "LOGNAME"}
    evaluated, run = (
        {name: value for name, value in json.loads(process.stdout).items() if name not in shells_own}
        for process in (done, started)
    )
    assert evaluated == run
    assert run["WORDS"] == EXTRA
    assert run["WHO"] == "1 of 2"


def test_env_format_refuses_values_with_line_breaks(ompbind):
    done = ompbind("plan", "--format", "env", "--env", "A=b c")
    lines = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert lines["A"] == "b c"
    assert lines["OMP_PROC_BIND"] == "true"
    assert "GOMP_CPU_AFFINITY" not in lines
    done = ompbind("plan", "--format", "env", "--env", "A=b\nc")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--format sh" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-n", "2", "--format", "sh"], "choose a rank with --rank, 0 to 1"),
        (["-n", "2", "--format", "sh", "--rank", "2"], "--rank 2: the plan has ranks 0 to 1"),
        (["--rank", "0"], "--rank requires"),
        (["-m", "0-"], "missing"),
        (["-s", "nonsense"], "is not a strategy: write balanced, compact"),
        (["--topology", "/nowhere"], "topology source '/nowhere' does not exist"),
    ],
)
def test_usage_errors_exit_with_two(ompbind, args, message):
    done = ompbind("plan", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_json_follows_its_schema(ompbind, dual):
    done = ompbind(
        "plan", "-n", "2", "--reserve", "1", "--bind", "thread", "--format", "json", "--topology", dual
    )
    plan = json.loads(done.stdout)
    assert plan["schema"] == "ompbind-plan/1"
    assert set(plan) == {"schema", "machine", "request", "ranks", "reserved", "idle", "notes",
                         "reasons", "measures", "taken", "workload", "configuration"}  # fmt: skip
    rank = plan["ranks"][1]
    assert (rank["rank"], rank["cpus"], rank["threads"], rank["nodes"]) == (1, [4, 5, 6], 3, [1])
    assert (rank["places"], rank["devices"]) == (["4-6", "5", "6"], [])
    assert rank["env"]["OMP_PLACES"] == "{4,5,6},{5},{6}"
    assert rank["env"]["KMP_AFFINITY"] is None
    assert (plan["reserved"], plan["idle"]) == ("3,7,11,15", "8-10,12-14")
    assert {"code", "text", "warning"} == set(plan["notes"][0])


def test_plans_print_the_same_every_time(ompbind, dual):
    for format_ in ("table", "json"):
        texts = {ompbind("plan", "-n", "3", "--format", format_, "--topology", dual).stdout for _ in range(2)}
        assert len(texts) == 1


TABLE = """\
2 ranks, balanced, on {source}:
16 CPUs, 8 cores, 2 packages, 2 NUMA nodes

rank  threads  cores  node  CPUs  OpenMP places
   0        4      4  0     0-3   1 place: whole rank
   1        4      4  1     4-7   1 place: whole rank

note: idle hardware threads on cores of ranks: CPUs 8-15 (--smt all uses them)
"""


def test_table(ompbind, dual):
    assert ompbind("plan", "-n", "2", "--topology", dual).stdout == TABLE.format(source=dual)


def test_tables_with_long_lists_fit_a_terminal(ompbind, tmp_path):
    shape = Shape(packages=2, nodes=2, l3s=4, cores=8, smt=2, numbering="round-robin")
    (tmp_path / "machine.json").write_text(render_json(make_machine(shape)))
    in_directory = {"cwd": tmp_path}
    tree = ompbind("topo", "--topology", "machine.json", **in_directory).stdout.splitlines()
    assert max(map(len, tree)) <= 80
    for bind in ("rank", "thread"):
        words = ("-n", "4", "--smt", "all", "--reserve", "1", "--bind", bind)
        done = ompbind("plan", *words, "--topology", "machine.json", **in_directory)
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "\x1b" not in done.stdout


PICTURE = """\
2 ranks, balanced, on {source}:
16 CPUs, 8 cores, 2 packages, 2 NUMA nodes

+ package 0 ------------+ + package 1 ------------+
| NUMA node 0 (1.0 GiB) | | NUMA node 1 (1.0 GiB) |
| L3 0                  | | L3 1                  |
| 0 0 0 0               | | 1 1 1 1               |
+-----------------------+ +-----------------------+

0  rank 0: CPUs 0-3, 4 threads
1  rank 1: CPUs 4-7, 4 threads

note: 8 idle hardware threads on cores of ranks
"""


def test_a_picture_in_a_pipe_uses_box_characters_only_if_the_encoding_has_them(ompbind, tmp_path):
    write_tree(tmp_path / "m", Shape(packages=2, cores=4, smt=2))
    args = ("plan", "-n", "2", "--format", "picture", "--topology", "m")
    for encoding in ("ascii", "latin-1", "iso8859-15"):
        env = {"PYTHONIOENCODING": encoding, "COLUMNS": "40"}
        assert ompbind(*args, env=env, cwd=tmp_path).stdout == PICTURE.format(source="m")
    for encoding in ("utf-8", "UTF8"):
        done = ompbind(*args, env={"PYTHONIOENCODING": encoding}, cwd=tmp_path, encoding="utf-8")
        assert "\n│ 0 0 0 0               │ │ 1 1 1 1               │\n" in done.stdout


def on_terminal(columns, *args, **env):
    """Return what ompbind writes to a terminal with this number of columns."""
    required("script")
    settings = {name: text for name, text in clean_environment().items() if name != "NO_COLOR"} | env
    command = f"stty cols {columns}; {shlex.join([OMPBIND, *args])}"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env=settings, capture_output=True, text=True, encoding="utf-8", timeout=60,
    )  # fmt: skip
    return done.stdout.replace("\r\n", "\n")


@pytest.mark.parametrize(("columns", "widest"), [(0, 80), (20, 40), (60, 60), (132, 132)])
def test_a_picture_on_a_terminal_uses_its_width(columns, widest):
    source = "synthetic:pack:2 l3:16 core:5 pu:1"
    args = ("plan", "-n", "8", "--format", "picture", "--topology", source)
    shown = on_terminal(columns, *args, TERM="dumb", PYTHONIOENCODING="utf-8")
    made = make_plan(read_machine(source), Request(ranks=8))
    expected = {width: render_picture(made, Screen(width=width)) for width in (40, 60, 80, 132)}
    assert len(set(expected.values())) == len(expected)
    assert shown == expected[widest] + "\n"


@pytest.mark.parametrize(("columns", "widest"), [(0, 80), (60, 60), (160, 160), (400, 200)])
def test_tables_and_messages_use_the_width_of_the_terminal(columns, widest):
    source = "synthetic:pack:2 core:40 pu:2"
    args = ("-n", "2", "--bind", "thread", "--topology", source)
    shown = on_terminal(columns, "plan", *args, "--explain", TERM="dumb")
    assert widest - 15 < max(map(len, shown.splitlines())) <= widest
    message = on_terminal(columns, "plan", "-n", "2", "-m", "x,0-1000", "-s", "l2", "--topology", source)
    assert widest / 2 < max(map(len, message.splitlines())) <= widest


@pytest.mark.parametrize(
    ("env", "is_coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_picture_on_a_terminal_has_colours_unless_disabled(dual, env, is_coloured):
    shown = on_terminal(80, "plan", "-n", "2", "--format", "picture", "--topology", dual, **env)
    assert "rank 1: CPUs 4-7" in shown
    assert ("\033[" in shown) == is_coloured


def test_every_format_prints_the_same_plan_every_time(ompbind, dual):
    for name in FORMATS:
        texts = {ompbind("plan", "--format", name, "--topology", dual).stdout for _ in range(2)}
        assert len(texts) == 1
        assert "" not in texts


def test_options_come_from_the_environment_too(ompbind, dual):
    env = {"OMPBIND_RANKS": "4", "OMPBIND_TOPOLOGY": dual, "OMPBIND_SMT": "all"}
    assert "4 ranks, balanced" in ompbind("plan", env=env).stdout
    assert "2 ranks, balanced" in ompbind("plan", "-n", "2", env=env).stdout


TREE = """\
  package 0, NUMA node 0 (1.0 GiB), L3 0: 4 × core (2 CPUs): 0-3,8-11
  package 1, NUMA node 1 (1.0 GiB), L3 1: 4 × core (2 CPUs): 4-7,12-15
  node distances
         0   1
     0  10  20
     1  20  10
"""


def test_topo_tree(ompbind, dual):
    done = ompbind("topo", "--topology", dual)
    assert done.stdout.endswith(TREE)


def test_topo_json_follows_its_schema(ompbind, dual):
    topo = json.loads(ompbind("topo", "--format", "json", "--topology", dual).stdout)
    assert topo["schema"] == "ompbind-topo/1"
    assert (topo["online"], topo["allowed"]) == ("0-15", "0-15")
    assert topo["cpus"][12] == {
        "cpu": 12, "drawer": None, "book": None, "package": 1, "die": None, "l3": 1, "cluster": None, "l2": 4,
        "core": 4, "node": 1, "kind": None, "allowed": True,
    }  # fmt: skip
    assert topo["nodes"][1]["memory_bytes"] == 1 << 30
    assert topo["nodes"][1]["cpus"] == "4-7,12-15"


def test_topo_table_has_a_line_for_each_cpu(ompbind, dual):
    lines = ompbind("topo", "--format", "table", "--topology", dual).stdout.splitlines()
    assert lines[0].split() == ["CPU", "core", "L2", "L3", "node", "package", "state"]
    assert lines[13].split() == ["12", "4", "4", "1", "1", "1", "allowed"]
    assert len(lines) == 17


def test_topo_svg_is_a_complete_file(ompbind, dual):
    picture = ompbind("topo", "--format", "svg", "--topology", dual).stdout
    assert picture.startswith("<?xml")
    assert picture.endswith("</svg>\n")


def test_a_machine_can_be_piped_in(ompbind, dual):
    topo = ompbind("topo", "--format", "json", "--topology", dual).stdout
    done = ompbind("plan", "-n", "2", "--topology", "/dev/stdin", stdin=None, input=topo)
    assert done.stdout == TABLE.format(source="/dev/stdin")


@pytest.mark.parametrize(
    ("env", "is_faint"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_cpus_that_are_not_allowed_are_faint_on_a_terminal(dual, tmp_path, env, is_faint):
    files = {"proc/mounts": "cgroup2 /c cgroup2 rw 0 0\n", "c/cpuset.cpus.effective": "0-3\n"}
    tree = write_tree(tmp_path / "narrow", Shape(packages=2, cores=4), files)
    command = shlex.join([OMPBIND, "topo", "--topology", str(tree)])
    settings = {**{name: text for name, text in clean_environment().items() if name != "NO_COLOR"}, **env}
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], env=settings, capture_output=True, timeout=60
    )
    assert b"not allowed" in done.stdout
    assert (b"\x1b[2m" in done.stdout) == is_faint


def test_this_machine_has_the_cpus_of_this_process(ompbind):
    topo = json.loads(ompbind("topo", "--format", "json").stdout)
    assert [cpu["cpu"] for cpu in topo["cpus"] if cpu["allowed"]] == sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_fits_80_columns_and_shows_examples(ompbind, verb):
    done = ompbind(*([verb] if verb else []), "--help", env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert ("Examples:" in done.stdout) == (verb is not None)


def test_version(ompbind):
    done = ompbind("--version")
    assert done.stdout.startswith("ompbind 0.")


@pytest.mark.parametrize(("args", "code"), [([], 2), (["bogus"], 2), (["--bogus"], 2), (["topo", "x"], 2)])
def test_misuse_of_the_command(ompbind, args, code):
    assert ompbind(*args).returncode == code


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_shell_completion(ompbind, name):
    script = ompbind(env={"_OMPBIND_COMPLETE": f"{name}_source"})
    assert "ompbind" in script.stdout
    words = ompbind(
        env={"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": "ompbind run --str", "COMP_CWORD": "2"}
    )
    assert "--strategy" in words.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--output", ["plain,inherit", "plain,tag", "plain,files", "plain,tag,files"]),
        ("--output t", ["plain,tag", "plain,tag,files"]),
        ("--log-dir", ["dir,"]),
        ("--report", ["file,"]),
        ("--stdin", ["plain,first", "plain,none"]),
        ("--verify", ["plain,strict"]),
        ("--preload t", ["plain,tcmalloc"]),
        ("--preload ./mine", ["file,./mine"]),
        ("--expect tcmalloc,i", ["plain,tcmalloc,iomp"]),
    ],
)
def test_values_of_running_options_are_completed(ompbind, words, found):
    env = {"_OMPBIND_COMPLETE": "bash_complete", "COMP_WORDS": f"ompbind run {words}", "COMP_CWORD": "3"}
    done = ompbind(env=env)
    assert done.stdout.splitlines() == found


def test_a_reader_that_closes_the_pipe_causes_no_error_message(ompbind):
    code = "(sleep 0.2; exec ompbind topo --format json) | true; echo ${PIPESTATUS[0]}"
    done = subprocess.run(
        ["bash", "-c", code], env=clean_environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "141"
