"""A web server with a thread for each request."""

import hashlib
import os
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RANK, PORT = os.environ.get("RANK", "0"), int(os.environ.get("PORT", "8000"))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 10_000)  # some milliseconds of work
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"rank {RANK} answers on CPUs {sorted(os.sched_getaffinity(0))}\n".encode())

    def log_message(self, *words):
        """Print nothing for each request."""


with ThreadingHTTPServer(("127.0.0.1", PORT), Handler) as server:
    print(f"rank {RANK} listens on port {PORT}", flush=True)
    with suppress(KeyboardInterrupt):  # Ctrl-C
        server.serve_forever()
