"""`run --rendezvous`: ports are free, and torch.distributed uses them."""

import signal
import socket
import sys

import pytest

from tests.live.conftest import wait_until
from tests.live.runtimes import needs_packages

WRITE_VARIABLES = """
echo "$MASTER_ADDR $MASTER_PORT $VLLM_DIST_IDENT" > "$0.new.$RANK"
mv "$0.new.$RANK" "$0.$RANK"
exec sleep 60
"""


def words(path, *options):
    return ["run", *options, "--rendezvous", "--", "sh", "-c", WRITE_VARIABLES, str(path)]


def read_variables(path, ranks=1):
    """Return the variables of all ranks of a run, once all have written them."""
    files = [path.with_name(f"{path.name}.{rank}") for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), "variables of all ranks")
    return [file.read_text().split() for file in files]


def test_concurrent_runs_have_different_free_ports(start, tmp_path):
    runs = [start(*words(tmp_path / name, "-n", "2", "--share")) for name in "ab"]
    found = [read_variables(tmp_path / name, 2) for name in "ab"]
    for variables in found:
        address, port, _ = variables[0]
        assert (variables, address) == ([variables[0]] * 2, "127.0.0.1")
        with socket.socket() as server:
            server.bind(("", int(port)))  # it is free for rank 0
    assert not set(found[0][0][1:]) & set(found[1][0][1:])
    for run in runs:
        run.send_signal(signal.SIGTERM)
        run.wait(30)


def test_each_group_has_a_port_of_its_own(ompbind):
    words = ("--rendezvous", "--name", "a", "--", "sh", "-c", 'echo "$MASTER_PORT $VLLM_DIST_IDENT"')
    done = ompbind("run", "--share", *words, ":", "--name", "b", *words[3:])
    assert (done.returncode, len(set(done.stdout.split()))) == (0, 4), done.stderr


def test_replaced_variables_are_reported(ompbind):
    env = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    args = ["run", "--rendezvous", "--env", "MASTER_ADDR=localhost", "--", "sh", "-c"]
    done = ompbind(*args, "echo $MASTER_ADDR; [ $MASTER_PORT != 29500 ]", env=env)
    assert (done.returncode, done.stdout) == (0, "localhost\n")
    assert done.stderr == "ompbind: --rendezvous replaces inherited variables: MASTER_PORT=29500\n"
    assert ompbind("run", "-q", *args[1:], "true", env=env).stderr == ""
    done = ompbind("run", "--", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT:$VLLM_DIST_IDENT", env=env)
    assert (done.stdout, done.stderr) == ("10.0.0.1:29500:\n", "")


SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
os.write(1, f"{dist.get_rank()} of {dist.get_world_size()}: {value.item():g}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.part("torch")
@pytest.mark.parametrize("around", [{}, {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "1"}])
def test_torch_distributed_uses_the_rendezvous(ompbind, around):
    needs_packages("torch")
    args = ["run", "-n", "2", "--rendezvous", "--timeout", "100", "--", sys.executable, "-c", SUM]
    done = ompbind(*args, env=around, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 of 2: 3", "1 of 2: 3"]
