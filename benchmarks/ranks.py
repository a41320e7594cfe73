"""What ranks of effect.py do in Python: torch's matrix products, or a server with a thread for each client.

    python ranks.py matmul | python ranks.py server

The rank connects to the Unix socket that EFFECT_MEETING names; for every line with a number that comes, it
works so many times and answers with the seconds that this took. It ends when nothing more comes. Any Python
may run this file, so it uses nothing of the others here.

The server is plain http.server: each of CLIENTS connections has a thread, and each request multiplies a
matrix, by torch if it is there and by numpy if not. Its clients are threads of a child process of the rank.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SIZE = {"matmul": 512, "server": 192}
"""Rows and columns of the matrices."""

CLIENTS = 2

Work = Callable[[int], None]
"""Does something so many times."""


def make_matmul() -> Work:
    """Return the products of torch's matrices, one after the other."""
    import torch

    a, b, out = (torch.rand(SIZE["matmul"], SIZE["matmul"]) for _ in range(3))

    def work(times: int) -> None:
        for _ in range(times):
            torch.mm(a, b, out=out)

    return work


def make_product() -> Callable[[], float]:
    """Return what a request asks for."""
    size = SIZE["server"]
    matrix: Any
    try:
        import torch

        matrix = torch.ones(size, size)
    except ImportError:
        import numpy as np

        matrix = np.ones((size, size), dtype="float32")
    return lambda: float((matrix @ matrix)[0, 0])


def make_server() -> Work:
    """Start a server with its clients; return how they ask it."""
    product = make_product()

    class Handler(BaseHTTPRequestHandler):
        """Multiplies for every request."""

        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            """Answer with one element of the product."""
            body = f"{product():.1f}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [sys.executable, __file__, "clients", str(server.server_address[1])]
    clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def work(times: int) -> None:
        assert clients.stdin
        assert clients.stdout
        print(times, file=clients.stdin, flush=True)
        if clients.stdout.readline() != "done\n":
            sys.exit("the clients have ended")

    return work


def ask(connection: HTTPConnection, times: int) -> None:
    """Ask so many times, with one connection."""
    for _ in range(times):
        connection.request("GET", "/")
        answer = connection.getresponse()
        if answer.read() != b"%.1f\n" % SIZE["server"]:
            sys.exit("a wrong answer")


def be_clients(port: int) -> None:
    """Divide as many requests as each line of stdin says; tell when all are answered."""
    connections = [HTTPConnection("127.0.0.1", port) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        for line in sys.stdin:
            each = max(1, int(line) // CLIENTS)
            list(threads.map(lambda one, each=each: ask(one, each), connections))
            print("done", flush=True)


def be_rank(work: Work) -> None:
    """Work as often as each line says, and answer with the seconds."""
    work(2 * CLIENTS)  # what the first time alone takes is no part of it
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.connect(os.environ["EFFECT_MEETING"])
        for line in meeting.makefile():
            begin = time.perf_counter()
            work(int(line))
            meeting.sendall(f"{time.perf_counter() - begin:.9f}\n".encode())


if __name__ == "__main__":
    if sys.argv[1] == "clients":
        be_clients(int(sys.argv[2]))
    else:
        be_rank({"matmul": make_matmul, "server": make_server}[sys.argv[1]]())
