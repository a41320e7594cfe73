"""The plug-in of vLLM in a server that treats plug-ins and workers as vLLM does: CPUs and log of workers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ompbind import Request, make_plan, parse_mask, read_machine
from ompbind.cpuset import CpuSet
from ompbind.plugins.vllm_workers import check_workers, read_server
from ompbind.procfs.reader import read_memory_policy

SERVER = (sys.executable, str(Path(__file__).with_name("toy_server.py")))
OMPBIND = str(Path(sys.executable).with_name("ompbind"))
FIRST, LAST, *_ = (*sorted(os.sched_getaffinity(0)), None)


def start(*words, prefix=(), **env):
    """Start the server; return its exit code, what each worker found, the modules of ompbind, and the log."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP", "VLLM_"))}
    clean["OMPBIND_RUNTIME_DIR"] = os.environ["OMPBIND_RUNTIME_DIR"]
    env = {"OMPBIND_VLLM": "1", **env}
    command = [*prefix, *SERVER, *words]
    done = subprocess.run(command, env={**clean, **env}, capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, lines[:-1], lines[-1] if lines else [], done.stderr


def test_without_the_variable_the_plug_in_imports_nothing_and_vllm_binds_itself():
    code, workers, modules, log = start("1", OMPBIND_VLLM="")
    assert (code, log) == (0, "")
    assert workers[0]["OMP_PLACES"] is None
    assert modules == ["ompbind", "ompbind.plugins", "ompbind.plugins.vllm"]


IN_RANK = (OMPBIND, "run", "--")
NOBIND = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.mark.two_cpus
@pytest.mark.parametrize(("words", "prefix", "env", "cpus"), [
    ("2", (), {}, f"{FIRST} {LAST}"),
    ("2", (), {"VLLM_CPU_OMP_THREADS_BIND": f"{LAST}|{FIRST}"}, f"{LAST} {FIRST}"),
    ("1", (), {"OMPBIND_MASK": f"{FIRST},{LAST}", "OMPBIND_SERVICE_CORES": "1"}, f"{FIRST}+{LAST}"),
    ("1 1", (), {}, f"{LAST}"),  # the second of two replicas
    ("2", IN_RANK, NOBIND, f"{FIRST} {LAST}"),
    ("2", (*IN_RANK[:-1], "--service-cores", "1", "--"), NOBIND, f"{FIRST} {LAST}"),
    ("2", (*IN_RANK[:-1], "--bind", "none", "--"), NOBIND, f"{FIRST} {LAST}"),
])  # fmt: skip
def test_each_worker_has_the_cpus_and_variables_of_its_rank(words, prefix, env, cpus):
    env = {"OMPBIND_ENV": "MARK=1", "GOMP_CPU_AFFINITY": "0", **env}
    code, workers, _, log = start(*words.split(), prefix=prefix, **env)
    assert code == 0, log
    found = [(worker["OMPBIND_CPUS"], worker["OMPBIND_SERVICE_CPUS"]) for worker in workers]
    assert ["+".join(filter(None, pair)) for pair in found] == cpus.split()
    first = int(words.partition(" ")[2] or 0)
    for number, (worker, own) in enumerate(zip(workers, cpus.split(), strict=True), start=first):
        assert worker["cpus"] == own.replace("+", ",")
        assert worker["OMP_NUM_THREADS"] == "1"
        assert worker["OMP_PLACES"] == (None if "--bind" in prefix else f"{{{worker['cpus']}}}")
        assert worker["RANK"] == ("0" if prefix else None)  # vLLM numbers its workers itself
        assert worker["OMPBIND_RANK"] == str(number)
        assert worker["nodes"] is None  # vLLM's node of the replica
        assert (worker["MARK"], worker["GOMP_CPU_AFFINITY"]) == ("1", None)
    assert (log.count("INFO ompbind: worker "), log.count(", as planned")) == (1 + len(workers), len(workers))
    assert "is not a variable" not in log


@pytest.mark.two_cpus
def test_a_worker_with_other_cpus_or_memory_than_planned_is_a_warning(caplog):
    _, _, _, log = start("2", TOY_BINDS=f"{FIRST} {LAST}", OMPBIND_MASK=f"{FIRST}|{LAST}")
    assert (
        f"WARNING ompbind: worker 0 has CPUs {CpuSet((FIRST, LAST))}, but the plan has CPU {FIRST} of" in log
    )
    words = (OMPBIND, "exec", "-m", str(FIRST), "--memory", "bind", "--", "sh", "-c", "echo up; exec cat")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        if ":" not in (policy := read_memory_policy(worker.pid) or ""):
            pytest.skip("this system has no memory policies")
        plan = make_plan(read_machine(), Request(mask=parse_mask(str(FIRST))))
        elsewhere = plan.replace(placements=(plan.placements[0].replace(memory_nodes=(777,)),))
        check_workers(elsewhere, {0: worker.pid})
        worker.stdin.close()
    node = policy.partition(":")[2]
    text = f"has CPU {FIRST} and memory of NUMA node {node}, but the plan has CPU {FIRST} of NUMA node 777"
    assert text in caplog.text


@pytest.mark.two_cpus
def test_servers_avoid_each_other():
    """The second server runs where the first has left a CPU; a third finds none."""
    words = (OMPBIND, "run", "-m", str(FIRST), "--", "sh", "-c", "echo up; exec cat")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taken:
        assert taken.stdout.readline() == b"up\n"
        assert [worker["cpus"] for worker in start("1", OMPBIND_AVOID="1")[1]] == [str(LAST)]
        code, _, _, log = start("2", OMPBIND_AVOID="1")
        assert code == 2
        assert f"CPU {FIRST} is in use by run" in log


@pytest.mark.parametrize(("env", "code", "log"), [
    ({"OMPBIND_MASK": "9999"}, 2, "ERROR ompbind: error: OMPBIND_MASK: CPU 9999 does not exist"),
    ({"OMPBIND_VLLM": "maybe"}, 1, "OMPBIND_VLLM: 'maybe' is not 1 (yes) or 0 (no)"),
    ({"OMPBIND_AVOIDD": "1"}, 0, "WARNING ompbind: OMPBIND_AVOIDD is not a variable of ompbind"),
    ({"TOY": "older"}, 0, "WARNING ompbind: OMPBIND_VLLM=1 has no effect on this vLLM: OMPProcessManager"),
    ({"TOY": "newer"}, 0, "has no effect on this vLLM: ParallelConfig has no data_parallel_rank_local"),
])  # fmt: skip
def test_errors_end_the_engine_and_a_vllm_that_is_not_known_stays_as_it_is(env, code, log):
    found = start("1", **env)
    assert found[0] == code
    assert log in found[3]
    assert ("hint: " in found[3]) is (code == 2)
    unchanged = [worker["OMP_PLACES"] is None for worker in found[1]]
    assert unchanged == ["no effect on this vLLM" in log] * (not code)


@pytest.mark.parametrize(("command", "replica", "sizes", "expected"), [
    # sizes: of the whole server, local, API servers
    ("-tp 2", None, (1, 1, 4), "0 of 2"), ("-tp 2 -dp 2", 1, (1, 1, 2), "2 of 4"),
    ("-tp 2 -dp 2 --api-server-count 1", 0, (1, 1, 1), "0 of 4"),
    ("-tp 2 -dp 4 --data-parallel-size-local=2", 1, (1, 1, 4), "2 of 4"),
    ("-tp 2 -dp 4 --data-parallel-rank 3", 0, (4, 1, 1), "0 of 2"),  # mixture of experts
    ("", 2, (4, 4, 4), "4 of 8"),
])  # fmt: skip
def test_replicas_of_a_server_share_a_plan(command, replica, sizes, expected):
    names = ("data_parallel_size", "data_parallel_size_local", "_api_process_count")
    sizes = dict(zip(names, sizes, strict=True))
    parallel = SimpleNamespace(local_world_size=2, data_parallel_rank_local=replica, **sizes)
    config = SimpleNamespace(parallel_config=parallel, kv_transfer_config=None)
    server = read_server(config, ("vllm", "serve", *command.split()))
    assert f"{server.first} of {server.all_workers}" == expected
