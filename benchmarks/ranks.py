"""The Python work of effect.py's ranks: torch's matrix products, or a server with a thread per client.

    python ranks.py matmul | python ranks.py server

The rank connects to the Unix socket named by EFFECT_SOCKET. It reads lines with a number, repeats its work
this many times, and answers with the seconds taken. It exits when the socket is closed. Any Python may run
this file, so it imports no other module of this directory.

The server is plain http.server: each of CLIENTS connections has a thread, and each request multiplies a
matrix, with torch if installed, else with numpy. The clients are threads of a child process of the rank.
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
"""Repeats the work a number of times."""


def make_matmul() -> Work:
    """Return work that multiplies matrices with torch."""
    import torch

    a, b, out = (torch.rand(SIZE["matmul"], SIZE["matmul"]) for _ in range(3))

    def work(times: int) -> None:
        for _ in range(times):
            torch.mm(a, b, out=out)

    return work


def make_product() -> Callable[[], float]:
    """Return a function that multiplies a matrix and returns one element of the product."""
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
    """Start a server and its clients; return work that sends requests."""
    product = make_product()

    class Handler(BaseHTTPRequestHandler):
        """Multiplies a matrix for each request."""

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
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [sys.executable, __file__, "clients", str(server.server_address[1])]
    clients = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def work(times: int) -> None:
        assert clients.stdin
        assert clients.stdout
        print(times, file=clients.stdin, flush=True)
        if clients.stdout.readline() != "done\n":
            sys.exit("the clients have exited")

    return work


def send_requests(connection: HTTPConnection, times: int) -> None:
    """Send a number of requests over one connection."""
    for _ in range(times):
        connection.request("GET", "/")
        answer = connection.getresponse()
        if answer.read() != b"%.1f\n" % SIZE["server"]:
            sys.exit("wrong answer")


def run_clients(port: int) -> None:
    """Read numbers of requests from stdin, divide each among the connections, and print a line when done."""
    connections = [HTTPConnection("127.0.0.1", port) for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as threads:
        for line in sys.stdin:
            each = max(1, int(line) // CLIENTS)
            list(threads.map(lambda connection, each=each: send_requests(connection, each), connections))
            print("done", flush=True)


def run_rank(work: Work) -> None:
    """Repeat the work as often as each line says, and answer with the seconds."""
    work(2 * CLIENTS)  # the first time is slower and not measured
    with socket.socket(socket.AF_UNIX) as barrier:
        barrier.connect(os.environ["EFFECT_SOCKET"])
        for line in barrier.makefile():
            begin = time.perf_counter()
            work(int(line))
            barrier.sendall(f"{time.perf_counter() - begin:.9f}\n".encode())


if __name__ == "__main__":
    if sys.argv[1] == "clients":
        run_clients(int(sys.argv[2]))
    else:
        run_rank({"matmul": make_matmul, "server": make_server}[sys.argv[1]]())
