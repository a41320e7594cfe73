"""`run --rendezvous`: ports are free, and torch.distributed uses them."""

import socket
import sys

import pytest

from tests.live.conftest import one_line
from tests.live.runtimes import needs_packages


def test_concurrent_runs_have_different_free_ports(start):
    show = 'echo "$MASTER_ADDR $MASTER_PORT $VLLM_DIST_IDENT"; exec sleep 60'
    command = ("run", "-n", "2", "--share", "--rendezvous", "--", "sh", "-c", show)
    runs = [start(*command), start(*command)]
    found = []
    for run in runs:
        variables, same = (run.stdout.readline().split() for _ in range(2))
        assert (variables, variables[0]) == (same, "127.0.0.1")
        with socket.socket() as server:
            server.bind(("", int(variables[1])))  # it is free for rank 0
        found += variables[1:]
    assert len(set(found)) == 4


@pytest.mark.parametrize("keep", [(), ("--keep-env",)])
def test_replaced_variables_are_reported_and_assignments_of_the_user_count(ompbind, keep):
    replaced = {"MASTER_PORT": "29500", "TORCHELASTIC_USE_AGENT_STORE": "True", "VLLM_DIST_IDENT": "x"}
    env = {"MASTER_ADDR": "10.0.0.1", **replaced}
    args = ["run", *keep, "--rendezvous", "--env", "MASTER_ADDR=host{rank}", "--", "sh", "-c"]
    script = "echo $MASTER_ADDR$TORCHELASTIC_USE_AGENT_STORE; [ $MASTER_PORT$VLLM_DIST_IDENT != 29500x ]"
    done = ompbind(*args, script, env=env)
    assert (done.returncode, done.stdout) == (0, "host0\n")
    listed = " ".join(f"{name}={value}" for name, value in replaced.items())
    said = f"ompbind: --rendezvous replaces inherited variables: {listed}"
    assert one_line(done.stderr).replace(",", "").strip() == said
    for words, more in ((("run", "-q", *args[1:]), {}), (args, {"OMPBIND_RANK": "0"})):
        assert "replaces" not in ompbind(*words, "true", env={**env, **more}).stderr
    done = ompbind("run", "--", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT", env=env)
    assert (done.stdout, done.stderr) == ("10.0.0.1:29500\n", "")


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
