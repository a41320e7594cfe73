"""`run --rendezvous`: ports are free, are kept from other runs, and are what torch meets at."""

import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from ompbind.errors import LaunchError
from ompbind.execution.rendezvous import open_rendezvous, read_pools
from tests.live.conftest import (
    OMPBIND,
    children_of,
    clean_environment,
    keeper_of,
    python_with_torch,
    ranks_of,
    signal,
    wait_until,
)

TELL = """
echo "$MASTER_ADDR $MASTER_PORT $VLLM_DIST_IDENT" > "$0.new.$RANK"
mv "$0.new.$RANK" "$0.$RANK"
exec sleep 60
"""


def listen(family, address, port=0):
    """Be a server."""
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


def is_held(port):
    """Whether some run keeps others from a port."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as name:
        try:
            name.bind(f"\0ompbind-port-{port}")
        except OSError:
            return True
    return False


def test_ports_are_outside_of_those_for_outgoing_connections():
    place = open_rendezvous()
    assert any(place.port in pool for pool in read_pools())
    assert is_held(place.port)
    os.close(place.held)
    assert not is_held(place.port)


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
def test_a_port_that_somebody_serves_is_not_taken(family, address):
    try:
        server = listen(family, address)
    except OSError:
        pytest.skip("no such addresses here")
    with server:
        port = server.getsockname()[1]
        place = open_rendezvous([[port]])
        os.close(place.held)
        assert place.port != port
        assert not is_held(port)


def test_a_port_that_another_run_has_is_not_taken():
    first = open_rendezvous()
    second = open_rendezvous([[first.port]])
    assert second.port != first.port
    os.close(first.held)
    third = open_rendezvous([[first.port]])
    assert third.port == first.port
    assert len({first.ident, second.ident, third.ident}) == 3
    os.close(second.held)
    os.close(third.held)


def test_where_no_port_is_found_it_is_an_error(monkeypatch):
    with closing(listen(socket.AF_INET, "127.0.0.1")) as server:
        monkeypatch.setattr("ompbind.execution.rendezvous._ANY", (server.getsockname()[1],))
        with pytest.raises(LaunchError, match="Address already in use"):
            open_rendezvous([])


def told(path, ranks):
    """What the ranks of a run were told, when all of them have written it."""
    files = [path.with_name(f"{path.name}.{rank}") for rank in range(ranks)]
    wait_until(lambda: all(file.exists() for file in files), "what the ranks were told")
    return [file.read_text().split() for file in files]


def sockets_of(pid):
    """The numbers by which a process has sockets open."""
    links = {int(link.name): os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return [number for number, target in links.items() if target.startswith("socket:")]


def test_concurrent_runs_meet_at_different_ports(start, tmp_path):
    runs = [
        start("run", "-n", "4", "--share", "--rendezvous", "--", "sh", "-c", TELL, str(tmp_path / name))
        for name in "ab"
    ]
    found = [told(tmp_path / name, 4) for name in "ab"]
    for one in found:
        address, port, _ = one[0]
        assert one == [one[0]] * 4
        assert address == "127.0.0.1"
        assert is_held(port)
        listen(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, "", int(port)).close()
    assert found[0][0][1] != found[1][0][1]
    assert found[0][0][2] != found[1][0][2]
    for run in runs:
        assert len(sockets_of(keeper_of(run))) == 1
        assert not any(map(sockets_of, ranks_of(run)))
        run.send_signal(signal.SIGTERM)
        run.wait(30)
    assert not [one for one in found if is_held(one[0][1])]


@pytest.mark.parametrize("victim", ["front", "keeper"])
def test_a_run_that_is_killed_gives_its_port_back(start, tmp_path, victim):
    run = start("run", "--rendezvous", "--", "sh", "-c", TELL, str(tmp_path / "a"))
    ((_, port, _),) = told(tmp_path / "a", 1)
    assert is_held(port)
    os.kill(run.pid if victim == "front" else children_of(run.pid)[0], signal.SIGKILL)
    wait_until(lambda: not is_held(port), "the port")


def test_what_holds_the_port_takes_the_place_of_no_standard_file(tmp_path):
    args = [OMPBIND, "run", "--rendezvous", "--", "sh", "-c", TELL, str(tmp_path / "a")]
    close = 'exec <&- >&- 2>&-; exec "$@"'
    with subprocess.Popen(["bash", "-c", close, "bash", *args], env=clean_environment()) as run:
        try:
            told(tmp_path / "a", 1)
            for pid in (run.pid, keeper_of(run)):
                (number,) = sockets_of(pid)
                assert number > 2
        finally:
            run.terminate()


def test_what_is_replaced_is_said(ompbind):
    env = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    args = ["run", "--rendezvous", "--env", "MASTER_ADDR=localhost", "--", "sh", "-c"]
    done = ompbind(*args, "echo $MASTER_ADDR; [ $MASTER_PORT != 29500 ]", env=env)
    assert (done.returncode, done.stdout) == (0, "localhost\n")
    assert done.stderr == "ompbind: inherited variables that --rendezvous replaces: MASTER_PORT=29500\n"
    assert ompbind("run", "-q", *args[1:], "true", env=env).stderr == ""
    done = ompbind("run", "--", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT:$VLLM_DIST_IDENT", env=env)
    assert (done.stdout, done.stderr) == ("10.0.0.1:29500:\n", "")


def test_plans_show_where_ranks_meet(ompbind):
    done = ompbind("run", "--dry-run", "--rendezvous", "--", "true")
    assert done.stdout.splitlines()[-1] == "ranks meet at: 127.0.0.1, port chosen at start"
    done = ompbind(
        "run", "-v", "--rendezvous", "--", "sh", "-c", "echo ranks meet at: $MASTER_ADDR, port $MASTER_PORT"
    )
    assert done.stdout.strip() in done.stderr.splitlines()
    assert "meet" not in ompbind("run", "--dry-run", "--", "true").stdout


SUM = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
os.write(1, f"{dist.get_rank()} of {dist.get_world_size()}: {value.item():g}\\n".encode())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("around", [{}, {"TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_PORT": "1"}])
def test_torch_meets_there(ompbind, around):
    args = ["run", "-n", "2", "--rendezvous", "--timeout", "100", "--", python_with_torch(), "-c", SUM]
    done = ompbind(*args, env=around, timeout=120)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 of 2: 3", "1 of 2: 3"]
