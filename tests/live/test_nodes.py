"""`ompbind exec` on several nodes, under each launcher: a node is a UTS namespace of this machine."""

import subprocess
import sys

import pytest

from tests.live.conftest import OMPBIND, two_cpus, wait_until
from tests.nodes import EACH, LAUNCHERS, NAMES, Nodes, can_make_namespaces
from tests.slurm import start_slurm

pytestmark = pytest.mark.part("nodes")

REPORT = """
import json, os
env, cpus = dict(os.environ), sorted(os.sched_getaffinity(0))
parent = open(f"/proc/{os.getppid()}/comm").read().strip()
with open(f"{env['OMPTEST_NODES']}/report-{env['RANK']}", "w") as file:
    json.dump({"node": os.uname().nodename, "env": env, "cpus": cpus, "parent": parent}, file)
"""
"""A rank writes what it has into a file, as some launchers divide long lines."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    can_make_namespaces()
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def slurm(nodes, tmp_path_factory):
    how = {"agent": (nodes.on,), "settings": f"TaskProlog={nodes.prolog}"}
    with start_slurm(tmp_path_factory.mktemp("slurm"), nodes.environment(), NAMES, **how) as env:
        yield env["SLURM_CONF"]


@pytest.fixture
def launch(nodes, request):
    """Start ranks with a launcher; return its processes, which are killed after the test."""
    started = []
    nodes.forget()

    def begin(name, *command, bind="none", options=()):
        env = nodes.environment()
        if name == "slurm":
            env["SLURM_CONF"] = request.getfixturevalue("slurm")
        commands = [[*words, *options, *command] for words in nodes.commands(name, bind)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        new = [subprocess.Popen(words, env=env, **pipes) for words in commands]
        started.extend(new)
        return new

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    nodes.close()
    wait_until(lambda: not nodes.processes(), "no process is left")


def finish(processes):
    """Wait for the commands of a launcher; return their exit codes, and their output and errors together."""
    ended = [process.communicate(timeout=90) for process in processes]
    codes = [process.returncode for process in processes]
    return codes, b"".join(out for out, _ in ended), b"".join(err for _, err in ended)


def report_of(nodes):
    return [OMPBIND, "exec", "--", nodes.together, sys.executable, "-c", REPORT]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ranks_have_the_plan_of_their_node(nodes, launch, name):
    codes, out, err = finish(launch(name, *report_of(nodes)))
    assert (set(codes), out, b"ompbind" in err) == ({0}, b"", False), err
    reports, launcher = nodes.reports(), LAUNCHERS[name]
    assert len(reports) == launcher.nodes * EACH
    for rank, report in enumerate(reports):
        node, local_rank = divmod(rank, EACH)
        env = report["env"]
        numbers = [int(env[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
        assert (report["node"], numbers) == (NAMES[node], [rank, len(reports), local_rank, EACH])
        cpu = two_cpus()[local_rank]
        assert (report["cpus"], env["OMP_PLACES"], env["OMP_NUM_THREADS"]) == ([cpu], f"{{{cpu}}}", "1")
        assert report["parent"] == launcher.parent
    run_ids = [report["env"]["OMPBIND_RUN_ID"] for report in reports]
    assert all(run_id.startswith(launcher.run_id) for run_id in run_ids)
    assert len(set(run_ids)) == (launcher.nodes if name == "mpich" else 1)


@pytest.mark.parametrize("name", ["openmpi-4", "openmpi-5", "mpich", "slurm", "slurm in another order"])
def test_ranks_that_the_launcher_has_bound_keep_their_cpus(nodes, launch, name):
    name, *other = name.split(" in ")
    cpus = two_cpus()[::-1] if other else two_cpus()
    options = ("--cpu-bind=map_cpu:{},{}".format(*cpus),) if other else ()
    codes, _, err = finish(launch(name, *report_of(nodes), bind="core", options=options))
    assert set(codes) == {0}, err
    assert [report["cpus"] for report in nodes.reports()] == [[cpu] for cpu in cpus] * len(NAMES)
    assert err.count(b"already bound by") == len(NAMES), err  # once on each node
