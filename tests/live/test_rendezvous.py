"""`run --rendezvous`: ports are free and reserved from other runs, and torch.distributed uses them."""

import os
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.rendezvous import open_rendezvous, read_port_pools
from tests.live.conftest import (
    OMPBIND,
    children_of,
    clean_environment,
    python_with_torch,
    ranks_of,
    signal,
    supervisor_of,
    wait_until,
)

WRITE_VARIABLES = """
echo "$MASTER_ADDR $MASTER_PORT $VLLM_DIST_IDENT" > "$0.new.$RANK"
mv "$0.new.$RANK" "$0.$RANK"
exec sleep 60
"""


def listen(family, address, port=0):
    """Listen on a port and return the socket."""
    server = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def is_reserved(port):
    """Return whether some run has reserved a port."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name:
        try:
            name.bind(f"\0ompbind-port-{port}")
        except OSError:
            return True
    return False


def test_the_port_is_outside_the_range_of_outgoing_connections():
    rendezvous = open_rendezvous()
    assert any(rendezvous.port in pool for pool in read_port_pools())
    assert is_reserved(rendezvous.port)
    os.close(rendezvous.reservation)
    assert not is_reserved(rendezvous.port)


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, "127.0.0.2"),
        (socket.AF_INET, "0.0.0.0"),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::"),
    ],
)
def test_a_port_in_use_is_not_chosen(family, address):
    try:
        server = listen(family, address)
    except OSError:
        pytest.skip("no such addresses here")
    with server:
        port = server.getsockname()[1]
        rendezvous = open_rendezvous([[port]])
        os.close(rendezvous.reservation)
        assert rendezvous.port != port
        assert not is_reserved(port)


def test_a_port_that_another_run_has_reserved_is_not_chosen():
    first = open_rendezvous()
    second = open_rendezvous([[first.port]])
    assert second.port != first.port
    os.close(first.reservation)
    third = open_rendezvous([[first.port]])
    assert third.port == first.port
    assert len({first.ident, second.ident, third.ident}) == 3
    os.close(second.reservation)
    os.close(third.reservation)


def test_no_free_port_is_an_error(monkeypatch):
    with closing(listen(socket.AF_INET, "127.0.0.1")) as server:
        monkeypatch.setattr("ompbind.execution.rendezvous._ANY", (server.getsockname()[1],))
        with pytest.raises(LaunchError, match="Address already in use"):
            open_rendezvous([])


def read_variables(path, ranks):
    """Return the variables of all ranks of a run, once all have written them."""
    files = [path.with_name(f"{path.name}.{rank}") for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), "variables of all ranks")
    return [file.read_text().split() for file in files]


def sockets_of(pid):
    """Return the numbers of the open sockets of a process."""
    links = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the process may close a file meanwhile
            links[int(link.name)] = os.readlink(link)
    return [number for number, target in links.items() if target.startswith("socket:")]


def test_concurrent_runs_have_different_ports(start, tmp_path):
    runs = [
        start(
            "run",
            "-n",
            "4",
            "--share",
            "--rendezvous",
            "--",
            "sh",
            "-c",
            WRITE_VARIABLES,
            str(tmp_path / name),
        )
        for name in "ab"
    ]
    found = [read_variables(tmp_path / name, 4) for name in "ab"]
    for variables in found:
        address, port, _ = variables[0]
        assert variables == [variables[0]] * 4
        assert address == "127.0.0.1"
        assert is_reserved(port)
        listen(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, "", int(port)).close()
    assert found[0][0][1] != found[1][0][1]
    assert found[0][0][2] != found[1][0][2]
    for run in runs:
        assert len(sockets_of(supervisor_of(run))) == 1
        assert not any(map(sockets_of, ranks_of(run)))
        run.send_signal(signal.SIGTERM)
        run.wait(30)
    assert not [variables for variables in found if is_reserved(variables[0][1])]


@pytest.mark.parametrize("victim", ["foreground", "supervisor"])
def test_a_run_that_is_killed_releases_its_port(start, tmp_path, victim):
    run = start("run", "--rendezvous", "--", "sh", "-c", WRITE_VARIABLES, str(tmp_path / "a"))
    ((_, port, _),) = read_variables(tmp_path / "a", 1)
    assert is_reserved(port)
    os.kill(run.pid if victim == "foreground" else children_of(run.pid)[0], signal.SIGKILL)
    wait_until(lambda: not is_reserved(port), "the port")


SQUATTER = """
import socket, sys
from ompbind.cli.run_settings import set_up_rendezvous
from ompbind.execution import rendezvous
from ompbind.planning.rank_command import RunSpec
from tests.cli.command_lines import read_run
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
    file.write("60000 60099")
names = [socket.socket(socket.AF_UNIX) for _ in range(110)]
for port, name in zip((*range(50000, 50010), *range(60000, 60100)), names):
    name.bind(f"\\0ompbind-port-{port}")
rendezvous.read_port_pools = lambda: (range(50000, 50010), ())
spec = set_up_rendezvous(read_run("--rendezvous", *sys.argv[1:]), RunSpec(argv=("x",), run_id="r", base={}))
print(dict(spec.added_variables)["MASTER_PORT"])
names[0].close()
print(rendezvous.open_rendezvous([range(50000, 50001)]).note == "")
"""


@pytest.mark.parametrize("quiet", [False, True])
def test_a_process_that_binds_all_names_cannot_refuse_a_port(quiet):
    """In a network namespace of its own, where few names are all names."""
    words = ["unshare", "-n", sys.executable, "-c", SQUATTER, *(["--quiet"] if quiet else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace here: {done.stderr}")
    port, reserved = done.stdout.split()
    assert int(port) in range(50000, 50010)
    assert reserved == "True", done.stderr
    note = f"--rendezvous: port {port} is free but not reserved: other processes hold the names"
    assert (note in " ".join(done.stderr.split())) == (not quiet)


def test_the_reservation_does_not_become_a_standard_file(tmp_path):
    args = [OMPBIND, "run", "--rendezvous", "--", "sh", "-c", WRITE_VARIABLES, str(tmp_path / "a")]
    close = 'exec <&- >&- 2>&-; exec "$@"'
    with subprocess.Popen(["bash", "-c", close, "bash", *args], env=clean_environment()) as run:
        try:
            read_variables(tmp_path / "a", 1)
            for pid in (run.pid, supervisor_of(run)):
                (number,) = sockets_of(pid)
                assert number > 2
        finally:
            run.terminate()


def test_replaced_variables_are_reported(ompbind):
    env = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    args = ["run", "--rendezvous", "--env", "MASTER_ADDR=localhost", "--", "sh", "-c"]
    done = ompbind(*args, "echo $MASTER_ADDR; [ $MASTER_PORT != 29500 ]", env=env)
    assert (done.returncode, done.stdout) == (0, "localhost\n")
    assert done.stderr == "ompbind: --rendezvous replaces inherited variables: MASTER_PORT=29500\n"
    assert ompbind("run", "-q", *args[1:], "true", env=env).stderr == ""
    done = ompbind("run", "--", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT:$VLLM_DIST_IDENT", env=env)
    assert (done.stdout, done.stderr) == ("10.0.0.1:29500:\n", "")


def test_plans_show_the_rendezvous(ompbind):
    done = ompbind("run", "--dry-run", "--rendezvous", "--", "true")
    assert done.stdout.splitlines()[-1] == "rendezvous: 127.0.0.1, port chosen at start"
    done = ompbind(
        "run", "-v", "--rendezvous", "--", "sh", "-c", "echo rendezvous: $MASTER_ADDR, port $MASTER_PORT"
    )
    assert done.stdout.strip() in done.stderr.splitlines()
    assert "rendezvous" not in ompbind("run", "--dry-run", "--", "true").stdout


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
    args = ["run", "-n", "2", "--rendezvous", "--timeout", "100", "--", python_with_torch(), "-c", SUM]
    done = ompbind(*args, env=around, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 of 2: 3", "1 of 2: 3"]
