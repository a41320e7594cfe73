"""What programs before a command change, as their options say, and where the command begins."""

import os

import pytest

from ompbind.cpuset import CpuSet
from ompbind.programs.command import read_workload, read_wrapped_workload
from ompbind.programs.wrappers import Wrapper, read_wrapper
from tests.elves import make_elf

CPUS = CpuSet.from_list
FOUR = Wrapper(text="", rebinds=True, cpus=CPUS("0-3"))
ON_NODE = Wrapper(text="", rebinds=True, nodes=CPUS("0"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("taskset -c 0-3 {app} x", FOUR),
        ("taskset --cpu-list 0-3 {app}", FOUR),
        ("taskset f {app}", FOUR),
        ("taskset 0xf {app}", FOUR),
        ("taskset -c 0-3 nonesuch", FOUR),
        ("taskset -c 0-6:2 {app}", FOUR.replace(cpus=CPUS("0,2,4,6"))),
        ("numactl -C 0-3 {app}", FOUR),
        ("numactl --physcpubind=+0-3 {app}", FOUR.replace(cpus=None)),
        ("numactl --cpunodebind=0 --membind=0 {app}", ON_NODE.replace(sets_memory=True)),
        ("numactl -N 0 {app}", ON_NODE),
        ("numactl -a -N 0-1 {app}", FOUR.replace(cpus=None, nodes=CPUS("0-1"))),
        ("numactl -N +0 {app}", FOUR.replace(cpus=None)),
        ("numactl --localalloc {app}", Wrapper(text="", sets_memory=True)),
        ("hwloc-bind core:0 -- {app}", FOUR.replace(cpus=None)),
        ("hwloc-bind --membind node:0 -- {app}", Wrapper(text="", sets_memory=True)),
        ("env -i A=1 {app}", Wrapper(text="", clears=True, assigned=(("A", "1"),))),
        ("env - {app} B=1", Wrapper(text="", clears=True)),
        ("env -iu A {app}", Wrapper(text="", clears=True, removed=("A",))),
        ("env -u A --unset=B C=1 D= {app}",
         Wrapper(text="", removed=("A", "B"), assigned=(("C", "1"), ("D", "")))),
        ("env -u env {app}", Wrapper(text="", removed=("env",))),
        ("env -S A=1 {app}", Wrapper(text="", assigned=(("A", "1"),))),
    ],
)  # fmt: skip
def test_options_say_what_a_wrapper_changes(app, line, expected):
    name, *words = line.format(app=app).split()
    wrapper, command = read_wrapper(f"/usr/bin/{name}", words, os.environ)
    assert wrapper.replace(text="") == expected
    assert command[:1] == ([app] if app in words else [])


@pytest.mark.parametrize(
    "line",
    [
        "taskset -p 1", "taskset -pc 0 1", "taskset -ap 3 1", "taskset", "numactl --show", "numactl -s",
        "numactl -H", "numactl --all {app}", "hwloc-bind --get", "env {app} -i", "env", "nice -n 5 {app}",
        "timeout 5 {app}", "env --nonesuch {app}", "{app} -c 0 A=1",
    ],
)  # fmt: skip
def test_other_wrappers_and_programs_change_nothing(app, line):
    name, *words = line.format(app=app).split()
    assert not read_wrapper(name, words, os.environ)[0].changes


def test_the_subcommand_of_perf_is_not_the_command(app):
    """There is also a program named `stat`."""
    assert read_wrapper("perf", ["stat", "-o", "out", app, "x"], os.environ)[1] == [app, "x"]


def test_all_wrappers_of_a_command_are_found_in_order(app):
    line = f"nice -n 5 env OMP_NUM_THREADS=2 timeout 9 taskset -c 1 env -i {app} -u X"
    workload = read_workload(line.split(), os.environ)
    assert workload.program == app
    texts = [wrapper.text for wrapper in workload.wrappers]
    assert texts == ["env OMP_NUM_THREADS=2", "taskset -c 1", "env -i"]


def test_a_wrapper_is_seen_although_its_command_is_missing():
    assert read_workload(["taskset", "-c", "1", "nonesuch"], os.environ).wrappers[0].cpus == CPUS("1")


def test_the_program_has_the_environment_that_env_leaves(tmp_path, app):
    mine = tmp_path / "libiomp5.so"
    mine.write_bytes(make_elf())
    base = {**os.environ, "LD_PRELOAD": str(mine)}
    assert read_workload([app], base).libraries
    for words in (["-i"], ["-u", "LD_PRELOAD"], ["nice", "env", "-u", "LD_PRELOAD"]):
        assert not read_workload(["env", *words, app], base).libraries, words


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "app"
    path.write_bytes(make_elf(["libc.so.6"]))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("wrap", "texts"),
    [
        ("", []),
        ("{app} profile -o x", []),
        ("nonesuch -x", []),
        ("taskset -c 0-3", ["taskset -c 0-3"]),
        ("env A=1 taskset -c 0", ["env A=1", "taskset -c 0"]),
        ("numactl -N 0", ["numactl -N 0"]),
    ],
)
def test_the_command_behind_any_wrapper_is_read(app, wrap, texts):
    wrap = wrap.format(app=app).split()
    env = {**os.environ, "PATH": f"{os.path.dirname(app)}:{os.environ['PATH']}"}
    for name in ("taskset", "numactl"):  # these need not be installed
        os.symlink(app, os.path.join(os.path.dirname(app), name))
    workload = read_wrapped_workload(wrap, ["env", "B=1", app], env)
    assert workload.program == app
    assert [wrapper.text for wrapper in workload.wrappers] == [*texts, "env B=1"]


def test_a_wrapper_sets_variables_of_the_command(app):
    workload = read_wrapped_workload(["env", "LD_PRELOAD=/nowhere/x.so"], [app], os.environ)
    assert workload.preload_warnings
