"""A server as people write them: a thread for each request, and numpy's own threads behind it."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

MATRIX = np.random.default_rng(0).random((400, 400))


class Handler(BaseHTTPRequestHandler):
    """Multiplies a matrix for every request, and says which rank did it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{os.environ['RANK']} {float((MATRIX @ MATRIX).trace()):.3f}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Keep quiet."""


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
