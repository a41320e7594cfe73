"""Variables of vLLM and SGLang with real ranks: their CPUs, and the variables that they get."""

import re
import shlex
import sys

import pytest

from ompbind.cpuset import CpuSet
from tests.live.conftest import required, two_cpus
from tests.live.test_exec import SLURM

SHOW = """
import os
names = ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU", "SGLANG_CPU_OMP_THREADS_BIND")
found = [os.environ.get(name) for name in names]
os.write(1, f"{os.environ['OMPBIND_RANK']} {sorted(os.sched_getaffinity(0))} {found}\\n".encode())
"""


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_ranks_are_bound_to_the_lists_in_their_order(ompbind, family):
    first, second = two_cpus()
    variable = f"{family.upper()}_CPU_OMP_THREADS_BIND"
    env = {variable: f" {second} | {first}", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    done = ompbind("run", "-n", "2", "--compat", family, "--", sys.executable, "-c", SHOW, env=env)
    assert done.returncode == 0, done.stderr
    inside = ["'nobind', None, None"] * 2
    if family == "sglang":
        inside = [f"None, '0', '{second}'", f"None, '0', '{first}'"]
    assert sorted(done.stdout.splitlines()) == [f"0 [{second}] [{inside[0]}]", f"1 [{first}] [{inside[1]}]"]
    assert done.stderr == ""


SHOW_SERVICE = """
import os
names = ("OMP_PLACES", "OMP_NUM_THREADS", "OMPBIND_CPUS", "OMPBIND_SERVICE_CPUS")
print(sorted(os.sched_getaffinity(0)), *map(os.environ.get, names))
"""


@pytest.mark.parametrize("verb", ["run", "exec"])
@pytest.mark.parametrize("reserved", [None, "1", "0"])
def test_reserved_cpus_are_in_the_affinity_mask_without_openmp_workers(ompbind, verb, reserved):
    first, second = two_cpus()
    env = {} if reserved is None else {"VLLM_CPU_NUM_OF_RESERVED_CPU": reserved}
    options = ("--compat", "vllm", "--smt", "all")
    show = (sys.executable, "-c", SHOW_SERVICE)
    done = ompbind(verb, *options, "--", *show, env=env, before=("taskset", "-c", f"{first},{second}"))
    expected = f"1 {first} {second}" if reserved != "0" else f"2 {CpuSet([first, second])} "
    assert done.stdout == f"[{first}, {second}] {{{first},{second}}} {expected}\n", done.stderr


@pytest.mark.parametrize("local_rank", [0, 1])
def test_a_bound_rank_has_its_share_of_the_service_cpus_of_all_ranks(ompbind, local_rank):
    """The last of two ranks has the one service CPU; bound to one CPU, it has none left for OpenMP."""
    cpu = two_cpus()[local_rank]
    job = {"SLURM_PROCID": str(4 + local_rank), "SLURM_LOCALID": str(local_rank)}
    env = {**SLURM, **job, "VLLM_CPU_NUM_OF_RESERVED_CPU": "1"}
    show = (sys.executable, "-c", SHOW_SERVICE)
    done = ompbind("exec", "--compat", "vllm", "--", *show, env=env, before=("taskset", "-c", str(cpu)))
    assert (f"[{cpu}] {{{cpu}}} 1 {cpu} \n" == done.stdout) is (local_rank == 0)
    assert ("would have no CPU left" in done.stderr) is (local_rank == 1)


def test_without_the_option_the_variables_are_inherited(ompbind):
    first, second = two_cpus()
    env = {"VLLM_CPU_OMP_THREADS_BIND": f"{second}|{first}"}
    args = ("run", "-n", "2", "-m", f"{first}|{second}", "--", sys.executable, "-c", SHOW)
    inside = f"['{second}|{first}', None, None]"
    for more, found in (({}, inside), ({"OMPBIND_COMPAT": "vllm"}, "['nobind', None, None]")):
        done = ompbind(*args, env={**env, **more})
        assert sorted(done.stdout.splitlines()) == [f"0 [{first}] {found}", f"1 [{second}] {found}"]


def test_a_rank_under_a_launcher_gets_its_list(ompbind):
    first, second = two_cpus()
    env = {**SLURM, "VLLM_CPU_OMP_THREADS_BIND": f"{second}|{first}"}
    done = ompbind("exec", "--compat", "vllm", "--", sys.executable, "-c", SHOW, env=env)
    assert done.stdout == f"5 [{first}] ['nobind', None, None]\n"


@pytest.mark.parametrize("family", ["vllm", "sglang"])
def test_lists_for_workers_of_one_server_are_written_as_they_are_read(ompbind, family):
    """The hint of the error is a command that works."""
    first, second = two_cpus()
    variable = f"{family.upper()}_CPU_OMP_THREADS_BIND"
    env = {variable: f"{second}|{first}"}
    done = ompbind("run", "--compat", family, "--", "true", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    words = shlex.split(re.search(r"\$\((.*?)\)", " ".join(done.stderr.split()))[1])
    again = ompbind(*words[1:], env=env)
    assert again.stdout == f"export {variable}='{second}|{first}'\n"


def test_a_second_plan_for_the_workers_of_a_server_is_the_same(ompbind):
    """The variable that the first plan has set is read by the second."""
    args = ("plan", "-n", "2", "--compat", "vllm", "--format", "vllm")
    args += ("--topology", "synthetic:pack:2 core:4 pu:2", "--", "vllm", "serve", "-tp", "2")
    env = {"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"}
    first = ompbind(*args, env=env)
    assert (first.stdout, first.stderr) == ("export VLLM_CPU_OMP_THREADS_BIND='1,3,5,7|9,11,13'\n", "")
    name, _, lists = shlex.split(first.stdout)[1].partition("=")
    again = ompbind(*args, env={**env, name: lists})
    assert (again.stdout, again.stderr) == (first.stdout, "")


def test_the_processes_of_sglang_may_use_the_service_cpus(ompbind):
    """SGLang binds the threads of its scheduler process to the CPUs of its variable; no other process."""
    first, second = two_cpus()
    code = (
        SHOW
        + """
if os.fork() == 0:
    os.sched_setaffinity(0, {int(cpu) for cpu in found[2].split(",")})  # the scheduler process
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.write(1, f"later {sorted(os.sched_getaffinity(0))}\\n".encode())  # such as the detokenizer
    os._exit(0)
os.wait()
"""
    )
    options = ("-n", "1", "--compat", "sglang", "--service-cores", "1")
    done = ompbind("run", *options, "--", sys.executable, "-c", code)
    both = f"[{first}, {second}]"
    assert done.stdout.splitlines() == [f"0 {both} [None, None, '{first}']", f"later {both}"], done.stderr


def test_an_invalid_value_starts_nothing(ompbind):
    done = ompbind("run", "--compat", "vllm", "--", "echo", env={"VLLM_CPU_OMP_THREADS_BIND": "0-x"})
    assert (done.returncode, done.stdout) == (125, "")
    assert "VLLM_CPU_OMP_THREADS_BIND: 'x' is not a number\n    0-x\n      ^\n" in done.stderr


def test_a_rank_that_its_launcher_has_bound_keeps_its_cpus(ompbind):
    launcher = required("mpiexec.hydra")
    args = (launcher, "-n", "2", "-bind-to", "core")
    env = {"CPU_VISIBLE_MEMORY_NODES": "0,77"}
    done = ompbind("exec", "--compat", "vllm", "--", sys.executable, "-c", SHOW, before=args, env=env)
    assert sorted(line.split(" [")[1] for line in done.stdout.splitlines()) == [
        f"{cpu}]" for cpu in two_cpus()
    ], done.stderr
