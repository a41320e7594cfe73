"""The ways to start two ranks that effect.py compares: with nothing set, by ompbind, and tuned by hand."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.launchers import Missing, find_openmpi, find_torchrun, found
from benchmarks.meeting import RANKS
from ompbind import Level, Machine
from ompbind.record import Record

POOLS = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_")
"""How variables begin that tell thread pools something, and that no arm may inherit."""


class Arm(Record):
    """A way to start two ranks: what stands before their command, and the variables that are set."""

    before: tuple[str, ...]
    env: Mapping[str, str]


class Hands(Record):
    """What somebody who tunes by hand has looked up: the CPUs of each rank, one of each core; and tools."""

    halves: tuple[tuple[int, ...], ...]
    threads: int
    torchrun: str


def split_cores(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Return one CPU of every core that may be used, in two halves of the same size, node after node."""
    usable = (core.cpus & machine.ordinary for core in machine.at(Level.CORE))
    cpus = [cpus.first for cpus in usable if cpus]
    node = {cpu: number for number, one in enumerate(machine.nodes) for cpu in one.cpus}
    cpus.sort(key=lambda cpu: (node.get(cpu, 0), cpu))
    half = len(cpus) // RANKS
    return tuple(tuple(cpus[rank * half : (rank + 1) * half]) for rank in range(RANKS))


def make_hands(machine: Machine, torchrun: str) -> Hands:
    """Return what is set by hand on a machine; threads within its CPU quota. Raises Missing with one core."""
    halves = split_cores(machine)
    if not halves[0]:
        raise Missing("there is only one core to use, and two ranks need two")
    share = len(halves[0]) if machine.quota is None else int(machine.quota / RANKS)
    return Hands(halves=halves, threads=max(1, min(len(halves[0]), share)), torchrun=torchrun)


def start_each(befores: list[str]) -> tuple[str, ...]:
    """Return a shell that starts a command behind each of these words, and waits for all of them."""
    starts = "".join(f'{before} "$@" & p="$p $!"; ' for before in befores)
    return ("/bin/sh", "-c", f"{starts}for one in $p; do wait $one || exit; done", "sh")


def make_taskset(hands: Hands) -> Arm:
    """Return half of the CPUs for each copy, and a place for each of its threads."""
    befores = []
    for half in hands.halves:
        places = ",".join(f"{{{cpu}}}" for cpu in half)
        befores.append(f"OMP_PLACES='{places}' {found('taskset')} -c {','.join(map(str, half))}")
    return Arm(before=start_each(befores), env={**_threads(hands), "OMP_PROC_BIND": "close"})


def make_openmpi(hands: Hands) -> Arm:
    """Return Open MPI's mpirun with as many cores for each rank as it has threads."""
    map_by = f"slot:PE={len(hands.halves[0])}"
    before = (*find_openmpi(), "--map-by", map_by, "--bind-to", "core", "-n", str(RANKS))
    return Arm(before=before, env=_threads(hands))


def make_torchrun(hands: Hands) -> Arm:
    """Return torchrun, with the number of threads."""
    program = find_torchrun(hands.torchrun)
    before = (program, "--standalone", "--no-python", f"--nproc-per-node={RANKS}")
    return Arm(before=before, env=_threads(hands))


def make_ompbind(_: Hands) -> Arm:
    """Return the ompbind beside this Python, with nothing but the number of ranks."""
    program = str(Path(sys.executable).with_name("ompbind"))
    return Arm(before=(program, "run", "-n", str(RANKS), "--"), env={})


def make_places(hands: Hands) -> Arm:
    """Return what is often recommended, exported once for both copies."""
    env = {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close", **_threads(hands)}
    return Arm(before=start_each([""] * RANKS), env=env)


def _threads(hands: Hands) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(hands.threads)}


MAKERS: Mapping[str, Callable[[Hands], Arm]] = {
    "default": lambda _: Arm(before=start_each([""] * RANKS), env={}),
    "ompbind": make_ompbind,
    "openmpi": make_openmpi,
    "torchrun": make_torchrun,
    "taskset": make_taskset,
    "places": make_places,
}


def make_arms(names: tuple[str, ...], hands: Hands) -> dict[str, Arm]:
    """Return the arms that can be used here; tell of those that cannot."""
    arms = {}
    for name in names:
        try:
            arms[name] = MAKERS[name](hands)
        except Missing as why:
            print(f"{name}: left out, {why}")
    return arms
