"""Measure the throughput of a server of vLLM with its own binding, with ompbind's, and without binding.

    python benchmarks/serving.py [--rounds N] [--seconds S] [--only NAMES] [--workers N]

It needs the environment of vllm_setup.py, some 30 seconds for each start of a server, and an idle machine.
The model is small and has random weights. In each round, each variant starts once, in random order, and
generates tokens for four clients:

    own      vllm serve MODEL: vLLM binds its workers itself
    run      ompbind run --compat vllm -- vllm serve MODEL; only with one worker
    plug-in  OMPBIND_VLLM=1 vllm serve MODEL
    nobind   VLLM_CPU_OMP_THREADS_BIND=nobind vllm serve MODEL

Promise: the median throughput with ompbind is at least 0.98 of that with vLLM's own binding. The exit code is
1 if the promise is missed.
"""

import argparse
import os
import random
import socket
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.launchers import LAUNCHER_PREFIXES, make_environment
from benchmarks.promises import MIN_THROUGHPUT, Promise, print_promises
from benchmarks.rounds import compile_modules, make_name_parser, make_parser
from benchmarks.variants import THREAD_POOL_PREFIXES
from benchmarks.vllm_server import ask, make_command, measure_tokens, started
from benchmarks.vllm_server import make_environment as add_vllm

OMPBIND = str(Path(sys.executable).with_name("ompbind"))
OWN = "own"
PREFIXES: Mapping[str, Sequence[str]] = {"run": (OMPBIND, "run", "--compat", "vllm", "--")}
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "plug-in": {"OMPBIND_VLLM": "1"},
    "nobind": {"VLLM_CPU_OMP_THREADS_BIND": "nobind"},
}
NAMES = (OWN, *PREFIXES, *VARIABLES)
OF_OMPBIND = ("run", "plug-in")


def find_free_port() -> int:
    """Return a port that no process uses."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
    return port


def measure_once(name: str, options: argparse.Namespace, directory: Path) -> float:
    """Start a server, and return the tokens per second that it generates. Raises RuntimeError."""
    env = make_environment(directory, (*LAUNCHER_PREFIXES, *THREAD_POOL_PREFIXES, "VLLM_"))
    env = add_vllm(env, **VARIABLES.get(name, {}))
    port = find_free_port()
    workers = ("-tp", str(options.workers)) if options.workers > 1 else ()
    command = (*PREFIXES.get(name, ()), *make_command(port, *workers))
    with started(command, env, directory / "log"):
        ask(port)
        return measure_tokens(port, options.seconds)


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = make_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0, help="time of generating tokens per start")
    parser.add_argument("--only", type=make_name_parser(NAMES), default=NAMES, metavar="NAMES")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="workers of each server (-tp)")
    return parser.parse_args()


def main() -> int:
    """Measure all rounds; return 1 if the promise is missed."""
    options = read_options()
    compile_modules()
    names = [name for name in options.only if name != "run" or options.workers == 1]
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="serving") as directory:
        for number in range(options.rounds):
            for name in random.sample(names, len(names)):
                found[name].append(measure_once(name, options, Path(directory)))
            rates = ", ".join(f"{name} {values[-1]:.0f}" for name, values in found.items())
            print(f"round {number + 1}: {rates} tokens/s", flush=True)
    print(f"\n{'':10}{'median':>8}{'lowest':>8}{'highest':>8}  tokens/s, load {os.getloadavg()[0]:.1f}")
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"{name:10}{medians[name]:8.0f}{min(values):8.0f}{max(values):8.0f}")
    pairs = [name for name in OF_OMPBIND if name in medians and OWN in medians]
    return print_promises(
        Promise(
            text=f"{name}, time per token, of {OWN}'s",
            limit=1 / MIN_THROUGHPUT,
            measured=medians[OWN] / medians[name],
        )
        for name in pairs
    )


if __name__ == "__main__":
    sys.exit(main())
