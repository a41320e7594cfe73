"""`run --rendezvous`: ports are free and reserved from other runs, and torch.distributed uses them."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.rendezvous import open_rendezvous, read_port_pools
from tests.live.conftest import ranks_of, supervisor_of, wait_until
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


def is_reserved(port):
    """Return whether some run has reserved a port."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name:
        try:
            name.bind(f"\0ompbind-port-{port}")
        except OSError:
            return True
    return False


def sockets_of(pid):
    """Return the numbers of the open sockets of a process."""
    links = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the process may close a file meanwhile
            links[int(link.name)] = os.readlink(link)
    return [number for number, target in links.items() if target.startswith("socket:")]


def test_the_port_is_outside_the_range_of_outgoing_connections_and_reserved_from_other_runs():
    first = open_rendezvous()
    assert any(first.port in pool for pool in read_port_pools())
    assert is_reserved(first.port)
    second = open_rendezvous([[first.port]])
    assert (second.port != first.port, second.ident != first.ident) == (True, True)
    os.close(first.reservation)
    assert not is_reserved(first.port)
    third = open_rendezvous([[first.port]])
    assert third.port == first.port
    os.close(second.reservation)
    os.close(third.reservation)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::"])
def test_a_port_in_use_is_not_chosen(address, monkeypatch):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        try:
            if ":" in address:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            server.bind((address, 0))
        except OSError:
            pytest.skip("needs addresses of this kind on this machine")
        server.listen()
        port = server.getsockname()[1]
        rendezvous = open_rendezvous([[port]])
        os.close(rendezvous.reservation)
        assert (rendezvous.port != port, is_reserved(port)) == (True, False)
        monkeypatch.setattr("ompbind.execution.rendezvous._ANY", (port,))
        with pytest.raises(LaunchError, match="Address already in use"):
            open_rendezvous([])


def test_concurrent_runs_have_different_ports_which_only_supervisors_hold(start, tmp_path):
    runs = [start(*words(tmp_path / name, "-n", "2", "--share")) for name in "ab"]
    found = [read_variables(tmp_path / name, 2) for name in "ab"]
    for variables in found:
        address, port, _ = variables[0]
        assert (variables, address, is_reserved(port)) == ([variables[0]] * 2, "127.0.0.1", True)
        with socket.socket() as server:
            server.bind(("", int(port)))  # it is free for rank 0
    assert not set(found[0][0][1:]) & set(found[1][0][1:])
    for run in runs:
        assert len(sockets_of(supervisor_of(run))) == 1
        assert not any(map(sockets_of, ranks_of(run)))
        run.send_signal(signal.SIGTERM)
        run.wait(30)
    assert not [variables for variables in found if is_reserved(variables[0][1])]


@pytest.mark.parametrize("victim", ["foreground", "supervisor"])
def test_a_run_that_is_killed_releases_its_port(start, tmp_path, victim):
    run = start(*words(tmp_path / "a"))
    ((_, port, _),) = read_variables(tmp_path / "a")
    assert is_reserved(port)
    os.kill(run.pid if victim == "foreground" else supervisor_of(run), signal.SIGKILL)
    wait_until(lambda: not is_reserved(port), "the port")


SQUATTER = """
import socket
from ompbind.execution.rendezvous import open_rendezvous
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("60000 60099")
names = [socket.socket(socket.AF_UNIX) for _ in range(110)]
for port, name in zip((*range(50000, 50010), *range(60000, 60100)), names):
    name.bind(f"\\0ompbind-port-{port}")
found = open_rendezvous([range(50000, 50010), ()])
names[0].close()
print(found.port, "not reserved" in found.note, open_rendezvous([range(50000, 50001)]).note == "")
"""


def test_a_process_that_binds_all_names_cannot_refuse_a_port():
    """In a network namespace of its own, where few names are all names."""
    command = ["unshare", "-n", sys.executable, "-c", SQUATTER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip(f"needs a network namespace, which takes root: {done.stderr}")
    port, *flags = done.stdout.split()
    assert (int(port) in range(50000, 50010), flags) == (True, ["True", "True"]), done.stderr


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
