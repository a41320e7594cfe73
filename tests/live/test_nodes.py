"""`ompbind exec` on several nodes, under each launcher: a node is a UTS namespace of this machine."""

import glob
import json
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.live.conftest import OMPBIND, required, two_cpus, wait_until
from tests.nodes import EACH, LAUNCHERS, NAMES, Nodes, can_make_namespaces
from tests.slurm import PROGRAMS, start_slurm

pytestmark = pytest.mark.part("nodes")

REPORT = """
import json, os
parent = f"/proc/{os.getppid()}"
report = {
    "node": os.uname().nodename, "env": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0)),
    "parent": open(f"{parent}/comm").read().strip(), "argv": open("/proc/self/cmdline").read().split("\\0"),
}
files = os.environ["OMPTEST_NODES"]
with open(f"{files}/report-{report['env']['RANK']}", "w") as file:
    json.dump(report, file)
os.dup2(os.open(f"{files}/probe-{report['env']['RANK']}", os.O_WRONLY | os.O_CREAT), 1)
os.execvp("ompbind", ["ompbind", "probe", "--format", "json"])
"""
"""A rank writes what it has into a file, as some launchers divide long lines, and becomes `ompbind probe`."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Four nodes; where a launcher is not stopped by its test, its processes are killed at the end."""
    can_make_namespaces()
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def slurm(nodes, tmp_path_factory):
    """Start a Slurm of four nodes with two simulated GPUs each; return its environment."""
    for name in PROGRAMS:
        required(name)
    directory = tmp_path_factory.mktemp("slurm")
    settings = f"TaskProlog={nodes.prolog}"
    with start_slurm(
        directory, nodes.environment(), NAMES, agent=(nodes.on,), gpus=2, settings=settings
    ) as env:
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
        commands = [[*words, *options, *command] for words in LAUNCHERS[name].commands(nodes, bind)]
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


@cache
def planned():
    """Return the ranks of `ompbind plan -n 2`."""
    done = subprocess.run(
        [OMPBIND, "plan", "-n", str(EACH), "--format", "json"], capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)["ranks"]


def report_of(nodes, *options):
    """Return the command of a rank that reports what it has."""
    return [OMPBIND, "exec", *options, "--", nodes.together, sys.executable, "-c", REPORT]


MPI_AND_SLURM = [name for name in LAUNCHERS if name != "torchrun"]
"""The launchers that can bind; all of them take less than a second to start ranks."""

OF_THE_JOB = {"RANK", "WORLD_SIZE", "OMPBIND_RANK", "OMPBIND_RUN_ID", "OMPBIND_WORKER_NAME"}
"""Variables that differ between a job of one node and a job of several nodes."""

WRITE = """
[ "$RANK" = 1 ] || exit 0
cat "$OMPTEST_NODES/bytes"
cat "$OMPTEST_NODES/bytes" >&2
exec cat /proc/self/maps >"$OMPTEST_NODES/maps"
"""
NOTE_SIGNALS = """
import os, signal, sys
def note(number, _):
    with open("%s/signal-%s" % (os.environ["OMPTEST_NODES"], os.environ["RANK"]), "w") as file:
        file.write(signal.Signals(number).name)
    sys.exit(3)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, note)
open("%s/started-%s" % (os.environ["OMPTEST_NODES"], os.environ["RANK"]), "w").close()
while True:
    signal.pause()
"""


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ranks_have_the_plan_of_their_node(nodes, launch, name):
    codes, out, err = finish(launch(name, *report_of(nodes)))
    assert (set(codes), out) == ({0}, b""), err
    reports = nodes.reports()
    assert len(reports) == LAUNCHERS[name].nodes * EACH
    for rank, report in enumerate(reports):
        node, local_rank = divmod(rank, EACH)
        env, plan = report["env"], planned()[local_rank]
        numbers = [int(env[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")]
        assert (report["node"], numbers) == (NAMES[node], [rank, len(reports), local_rank, EACH])
        assert report["cpus"] == plan["cpus"]
        same = plan["env"].keys() - OF_THE_JOB
        assert {key: env.get(key) for key in same} == {key: plan["env"][key] for key in same}
        assert (report["argv"][0], LAUNCHERS[name].parent) == (sys.executable, report["parent"])
        for thread in nodes.probed()[rank]:
            shown = (thread["rank"], thread["places"], thread["cpus_allowed"], thread["threads"])
            assert shown == (rank, plan["places"], ",".join(map(str, plan["cpus"])), plan["threads"])
    assert all(nodes.probed()), "every rank has run threads"
    run_ids = [report["env"]["OMPBIND_RUN_ID"] for report in reports]
    assert all(run_id.startswith(LAUNCHERS[name].run_id) for run_id in run_ids)
    assert run_ids == [run_ids[rank // EACH * EACH] for rank in range(len(reports))]
    assert len(set(run_ids)) == (LAUNCHERS[name].nodes if name == "mpich" else 1)


@pytest.mark.parametrize("name", MPI_AND_SLURM)
def test_output_is_untouched_and_nothing_of_ompbind_is_left(nodes, launch, name):
    """Rank 1 writes all bytes, without a newline at the end, and then what its memory maps."""
    plain = [nodes.together, "sh", "-c", WRITE]
    bytes_ = bytes(range(256)) * 8
    (nodes.directory / "bytes").write_bytes(bytes_)
    codes, out, err = finish(launch(name, OMPBIND, "exec", "--", *plain))
    assert (set(codes), out) == ({0}, bytes_), err
    own, _, rest = err.partition(bytes_)  # mpirun can warn before: "plm:ssh: Warning: setpgid ... failed"
    assert (rest, b"ompbind" in own) == (b"", False), err
    maps = (nodes.directory / "maps").read_text()
    assert "/cat" in maps
    assert not [word for word in ("ompbind", "python") if word in maps]


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_launcher_gets_the_exit_code_of_a_rank(nodes, launch, name):
    """The rank is on the second node. The other agent of torchrun may wait for minutes."""
    fail = [OMPBIND, "exec", "--", nodes.together, "sh", "-c", "[ $RANK != 3 ] || exit 7"]
    codes, _, err = finish(launch(name, *fail)[-1:])
    assert codes == [LAUNCHERS[name].exit_code], err


@pytest.mark.parametrize("name", LAUNCHERS)
def test_ranks_get_signals_through_the_launcher(nodes, launch, name, request):
    # Open MPI 4 kills ranks a second after the signal, which can be too short under load
    options = ("--mca", "odls_base_sigkill_timeout", "5") if name == "openmpi-4" else ()
    note = [sys.executable, "-I", "-S", "-c", NOTE_SIGNALS]
    started = launch(name, OMPBIND, "exec", "--", *note, options=options)
    size = LAUNCHERS[name].nodes * EACH
    wait_until(lambda: nodes.started() == size, "all ranks run", 60)
    if name == "slurm":  # srun reacts to SIGTERM with SIGKILL for ranks
        env = nodes.environment(SLURM_CONF=request.getfixturevalue("slurm"))
        subprocess.run(["scancel", "--signal=TERM", "--user=root"], env=env, check=True, timeout=30)
    else:
        for process in started:
            process.terminate()

    def read_signals():
        return [text for path in nodes.directory.glob("signal-*") if (text := path.read_text())]

    wait_until(lambda: len(read_signals()) == size, "all ranks have a signal", 30)
    assert set(read_signals()) == {"SIGTERM"}
    codes, _, err = finish(started)
    assert 0 not in codes, err


@pytest.mark.parametrize("name", [*MPI_AND_SLURM, "slurm in another order"])
def test_ranks_that_the_launcher_has_bound_keep_their_cpus(nodes, launch, name):
    name, *other = name.split(" in ")
    cpus = two_cpus()[::-1] if other else two_cpus()
    options = ("--cpu-bind=map_cpu:{},{}".format(*cpus),) if other else ()
    codes, _, err = finish(launch(name, *report_of(nodes), bind="core", options=options))
    assert set(codes) == {0}, err
    assert [report["cpus"] for report in nodes.reports()] == [[cpu] for cpu in cpus] * len(NAMES)
    assert err.count(b"already bound by") == len(NAMES), err  # once on each node


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        (("--gres=gpu:2",), ["0,1", "0,1"]),
        (("--gpus-per-task=1",), ["0", "1"]),
        (("--gpus-per-node=2", "--gpu-bind=none"), [None, None]),
    ],
    ids=["per-node", "per-task", "unbound"],
)
def test_variables_of_slurm_for_devices_stay(nodes, launch, options, gpus):
    """The GPUs of this Slurm are null devices: ompbind finds none, and leaves the variables alone."""
    if glob.glob("/dev/nvidia[0-9]*") or glob.glob("/dev/dri/renderD*"):
        pytest.skip("this machine has GPUs")
    codes, _, err = finish(launch("slurm", *report_of(nodes, "--devices", "auto"), options=options))
    assert set(codes) == {0}, err
    with_ompbind = [report["env"] for report in nodes.reports()]
    assert [env.get("CUDA_VISIBLE_DEVICES") for env in with_ompbind] == gpus * len(NAMES)
    nodes.forget()
    alone = ["sh", "-c", 'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec "$@"', "sh", *report_of(nodes)[3:]]
    assert finish(launch("slurm", *alone, options=options))[0] == [0]

    def devices_of(env):
        return {name: value for name, value in env.items() if re.search("DEVICE|GPU|AFFINITY_MASK", name)}

    for env, plain in zip(with_ompbind, (report["env"] for report in nodes.reports()), strict=True):
        assert devices_of(env) == devices_of(plain)
