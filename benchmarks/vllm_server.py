"""Start servers of vLLM in .venv/vllm (vllm_setup.py), ask them for tokens, and find their processes."""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.vllm_setup import DIRECTORY, MODEL

READY = "Application startup complete"
"""What a server writes into its log when it accepts requests."""

START_LIMIT_S, STOP_LIMIT_S = 300.0, 60.0

OPTIONS = (
    "--load-format", "dummy", "--host", "127.0.0.1", "--max-model-len", "512", "--enforce-eager",
    "--dtype", "bfloat16", "--no-enable-log-requests",
)  # fmt: skip


def make_command(port: int | str, *options: str) -> tuple[str, ...]:
    """Return the command of a server."""
    return (str(DIRECTORY / "bin/vllm"), "serve", str(MODEL), *OPTIONS, "--port", str(port), *options)


def make_environment(env: Mapping[str, str], **others: str) -> dict[str, str]:
    """Return an environment for servers, which look up nothing in the network."""
    fixed = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    path = f"{DIRECTORY / 'bin'}:{env['PATH']}"  # for ninja, which torch may call
    return {**env, **fixed, "PATH": path, **others}


class Server:
    """A started command with one or more servers; `log` is what they have written."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], path: Path) -> None:
        self._path = path
        with path.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    @property
    def log(self) -> str:
        """What the servers have written so far."""
        return self._path.read_text(errors="replace")

    def wait(self, servers: int = 1) -> None:
        """Wait until all servers accept requests. Raises RuntimeError with the log if they do not."""
        give_up_at = time.monotonic() + START_LIMIT_S
        while self.log.count(READY) < servers:
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"the server does not start:\n{self.log[-8000:]}")
            time.sleep(0.1)

    def find_processes(self, name: str = "") -> list[psutil.Process]:
        """Return the process that was started and its descendants, or those whose names begin with a text."""
        root = psutil.Process(self.process.pid)
        return [found for found in (root, *root.children(recursive=True)) if found.name().startswith(name)]


@contextmanager
def started(command: Sequence[str], env: Mapping[str, str], path: Path, servers: int = 1) -> Iterator[Server]:
    """Start servers, wait until they accept requests, and terminate them in the end."""
    server = Server(command, env, path)
    processes: list[psutil.Process] = []
    try:
        server.wait(servers)
        processes = server.find_processes()
        yield server
    finally:
        if server.process.poll() is None:
            processes = processes or server.find_processes()
            server.process.terminate()
        _, alive = psutil.wait_procs(processes, STOP_LIMIT_S)
        for process in alive:
            process.kill()
        server.process.wait()


def ask(port: int, tokens: int = 16) -> int:
    """Let a server generate tokens; return how many it has generated. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"model": str(MODEL), "prompt": "hello world", "max_tokens": tokens, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return int(answer["usage"]["completion_tokens"])


def measure_tokens(port: int, seconds: float, clients: int = 4, tokens: int = 64) -> float:
    """Return the tokens per second that a server generates for several clients."""
    begun = time.perf_counter()

    def generate(_: int) -> int:
        generated = 0
        while time.perf_counter() - begun < seconds:
            generated += ask(port, tokens)
        return generated

    with ThreadPoolExecutor(clients) as pool:
        total = sum(pool.map(generate, range(clients)))
    return total / (time.perf_counter() - begun)


def read_masks(pid: int) -> set[str]:
    """Return the affinity masks of all threads of a process, as the kernel writes them."""
    masks = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        status = Path(f"/proc/{pid}/task/{task}/status").read_text()
        masks.add(status.partition("Cpus_allowed_list:")[2].split()[0])
    return masks
