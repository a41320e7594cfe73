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
    """Return a free port, with the next port free too."""
    for low in range(18080 + os.getpid() % 1000 * 10, 32000, 10):
        try:
            for port in (low, low + 1):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return low
    raise AssertionError("no two ports are free")


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


@pytest.mark.parametrize("mask", ["{0}|{1}", "{0},{1}|{0},{1}"])
def test_every_thread_of_a_server_has_the_cpus_of_its_rank(start, mask):
    first, second = two_cpus()
    expected = [f"{first}-{second}"] * 2 if "," in mask else [str(first), str(second)]
    low = free_ports()
    options = ["-n", "2", "-m", mask.format(first, second), "--share", "--env", f"PORT={{rank+{low}}}"]
    process = start("run", *options, "--", sys.executable, SERVER)
    connections = [(rank, connect(low + rank, process)) for rank in (0, 1) for _ in range(4)]
    for rank, connection in connections:
        connection.request("GET", "/")
        assert connection.getresponse().read().decode().split()[0] == str(rank)
    for pid in ranks_of(process):
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        tasks = os.listdir(f"/proc/{pid}/task")
        assert len(tasks) >= 5, "the main thread and a thread per connection"
        rank = next(int(each[5:]) for each in variables if each.startswith("RANK="))
        assert {allowed_list(pid, task) for task in tasks} == {expected[rank]}
    for _, connection in connections:
        connection.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
