"""Real servers of vLLM under ompbind: they answer, run on their CPUs, and leave no process behind."""

import os
import signal
from contextlib import contextmanager

import psutil
import pytest

from benchmarks.vllm_server import Server, ask, make_command, make_environment, read_masks, started
from ompbind.cpuset import CpuSet
from tests.live.conftest import OMPBIND, clean_environment, two_cpus
from tests.slurm import find_free_ports

pytestmark = [pytest.mark.part("vllm"), pytest.mark.alone]

RUN = (OMPBIND, "run", "--compat", "vllm")
LIMIT_S = 60
FIRST, LAST = (str(cpu) for cpu in two_cpus())
BOTH = str(CpuSet(two_cpus()))


@pytest.fixture(autouse=True)
def _only_two_cpus():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, two_cpus())
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def serve(tmp_path):
    """Start a command with servers, check that each answers, and that nothing is left in the end."""

    @contextmanager
    def start(command, ports, **variables):
        env = make_environment(clean_environment(**variables))
        path = tmp_path / f"log-{ports[0]}"
        with started(command, env, path, len(ports)) as server:
            assert [ask(port) for port in ports] == [16] * len(ports)
            processes = server.find_processes()
            yield server
        assert not [process for process in processes if process.is_running()]

    return start


def find_workers(server: Server, read=read_masks):
    """Return the affinity masks of the threads of each worker, in the order of the workers."""
    workers = sorted(server.find_processes("VLLM::Worker"), key=lambda process: " ".join(process.cmdline()))
    return [read(process.pid) for process in workers]


def wait_until_gone(server: Server, processes):
    """Wait until all processes are gone, and return the exit code of the process that was started."""
    code = server.process.wait(LIMIT_S)
    others = [process for process in processes if process.pid != server.process.pid]
    _, alive = psutil.wait_procs(others, LIMIT_S)
    assert not alive
    return code


def test_a_server_in_a_rank(serve):
    (port,) = find_free_ports(1)
    with serve((*RUN, "--", *make_command(port)), [port]) as server:
        assert find_workers(server) == [{BOTH}]  # the compute CPU and the service CPU
        processes = server.find_processes()
        server.process.send_signal(signal.SIGTERM)
        assert wait_until_gone(server, processes) == 0  # the code of vLLM after SIGTERM


def test_two_servers_have_their_own_cpus_and_are_killed_with_ompbind(serve):
    base = find_free_ports(1)[0]  # the next port is free too, except by chance
    command = (*RUN, "-n", "2", "--fill", "--", *make_command(f"{{rank+{base}}}"))
    with serve(command, [base, base + 1]) as server:
        assert sorted(map(sorted, find_workers(server))) == [[FIRST], [LAST]]
        processes = server.find_processes()
        server.process.kill()
        assert wait_until_gone(server, processes) == -signal.SIGKILL


@pytest.mark.parametrize("prefix", [(), (*RUN, "--")], ids=["alone", "in a rank"])
def test_workers_by_the_plug_in_and_the_crash_of_one(serve, prefix):
    (port,) = find_free_ports(1)
    with serve((*prefix, *make_command(port, "-tp", "2")), [port], OMPBIND_VLLM="1") as server:
        assert find_workers(server) == [{FIRST}, {LAST}]
        assert server.log.count(f"ompbind: worker 0: CPU {FIRST}; worker 1: CPU {LAST}") == 1
        processes = server.find_processes()
        server.find_processes("VLLM::Worker")[1].kill()
        assert wait_until_gone(server, processes) == 0  # vLLM's own code
        assert "died unexpectedly" in server.log


def test_replicas_by_the_plug_in(serve):
    (port,) = find_free_ports(1)
    with serve(make_command(port, "-dp", "2"), [port], OMPBIND_VLLM="1") as server:
        assert sorted(map(sorted, find_workers(server))) == [[FIRST], [LAST]]
        assert server.log.count(", as planned") == 2
