"""A Python server, two ranks on two ports: every thread, OpenMP or not, is allowed on the rank's CPUs."""

import http.client
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.live.conftest import allowed_list, ranks_of, two_cpus, wait_until

pytest.importorskip("numpy")
SERVER = str(Path(__file__).with_name("server.py"))


def free_ports():
    """Return a free port that is divisible by 10, with the next port free too."""
    for low in range(18080 + os.getpid() % 1000 * 10, 32000, 10):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", low))
                second.bind(("127.0.0.1", low + 1))
            except OSError:
                continue
            return low
    raise AssertionError("no two ports are free")


def ask(connection):
    connection.request("GET", "/")
    return connection.getresponse().read().decode().split()


def connect(port, process):
    def attempt():
        assert process.poll() is None, process.stderr.read()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.connect()
        except ConnectionRefusedError:
            connection.close()
            return None
        return connection

    return wait_until(attempt, f"the server on port {port} answers")


@pytest.mark.parametrize("mask", [None, "both"])
def test_every_thread_of_a_server_has_the_cpus_of_its_rank(start, mask):
    first, second = two_cpus()
    share = {None: f"{first}|{second}", "both": f"{first},{second}|{first},{second}"}[mask]
    expected = {None: [str(first), str(second)], "both": [f"{first}-{second}"] * 2}[mask]
    low = free_ports()
    options = ["-n", "2", "-m", share, "--share", "--env", f"PORT={{rank+{low}}}"]
    process = start("run", *options, "--", sys.executable, SERVER)
    open_ = [(rank, connect(low + rank, process)) for rank in (0, 1) for _ in range(4)]
    assert {(str(rank), *ask(connection)[:1]) for rank, connection in open_} == {("0", "0"), ("1", "1")}
    ranks = {rank_of(pid): pid for pid in ranks_of(process)}
    for rank, pid in ranks.items():
        tasks = os.listdir(f"/proc/{pid}/task")
        assert len(tasks) >= 5, "the main thread and a thread per connection"
        assert {allowed_list(pid, task) for task in tasks} == {expected[rank]}
    for _, connection in open_:
        connection.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130


def rank_of(pid):
    """Return the rank of a process, from its environment."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(pair[5:]) for pair in pairs if pair.startswith(b"RANK="))
