"""A typical Python server: a thread per connection, and numpy's own threads."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

MATRIX = np.random.default_rng(0).random((400, 400))


class Handler(BaseHTTPRequestHandler):
    """Multiplies a matrix for every request; answers with the rank and the trace."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{os.environ['RANK']} {float((MATRIX @ MATRIX).trace()):.3f}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Write no log."""


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
