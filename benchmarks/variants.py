"""The variants that effect.py compares: two ranks started without binding, by ompbind, and tuned by hand."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.barrier import RANKS
from benchmarks.launchers import Unavailable, find_openmpi, find_program, find_torchrun
from ompbind import Level, Machine
from ompbind.record import Record

THREAD_POOL_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_")
"""Prefixes of variables that configure thread pools. No variant inherits them."""


class Variant(Record):
    """A way to start two ranks: `prefix` comes before their command, `env` are additional variables."""

    prefix: tuple[str, ...]
    env: Mapping[str, str]


class HandTuning(Record):
    """Settings for variants that are tuned by hand.

    `halves` are the CPUs of each rank, one CPU per core. `threads` is the number of threads per rank.
    `torchrun` is the path of torchrun.
    """

    halves: tuple[tuple[int, ...], ...]
    threads: int
    torchrun: str


def split_cores(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """Return one CPU of each usable core, in two halves of equal size, sorted by NUMA node."""
    usable = (core.cpus & machine.default_cpus for core in machine.at(Level.CORE))
    cpus = [cpus.first for cpus in usable if cpus]
    node_of = {cpu: number for number, node in enumerate(machine.nodes) for cpu in node.cpus}
    cpus.sort(key=lambda cpu: (node_of.get(cpu, 0), cpu))
    half = len(cpus) // RANKS
    return tuple(tuple(cpus[rank * half : (rank + 1) * half]) for rank in range(RANKS))


def make_hand_tuning(machine: Machine, torchrun: str) -> HandTuning:
    """Return the settings by hand for a machine; threads within its CPU quota.

    Raises Unavailable if there is only one core.
    """
    halves = split_cores(machine)
    if not halves[0]:
        raise Unavailable("only one core can be used, and two ranks need two")
    share = len(halves[0]) if machine.quota is None else int(machine.quota / RANKS)
    return HandTuning(halves=halves, threads=max(1, min(len(halves[0]), share)), torchrun=torchrun)


def make_shell_launcher(prefixes: list[str]) -> tuple[str, ...]:
    """Return a shell command that starts its arguments once after each prefix, and waits for all."""
    starts = "".join(f'{prefix} "$@" & p="$p $!"; ' for prefix in prefixes)
    return ("/bin/sh", "-c", f"{starts}for pid in $p; do wait $pid || exit; done", "sh")


def make_taskset(tuning: HandTuning) -> Variant:
    """Return taskset with half of the CPUs for each rank, and one place per thread."""
    prefixes = []
    for half in tuning.halves:
        places = ",".join(f"{{{cpu}}}" for cpu in half)
        prefixes.append(f"OMP_PLACES='{places}' {find_program('taskset')} -c {','.join(map(str, half))}")
    return Variant(prefix=make_shell_launcher(prefixes), env={**_threads(tuning), "OMP_PROC_BIND": "close"})


def make_openmpi(tuning: HandTuning) -> Variant:
    """Return Open MPI's mpirun with one core per thread of each rank."""
    map_by = f"slot:PE={len(tuning.halves[0])}"
    prefix = (*find_openmpi(), "--map-by", map_by, "--bind-to", "core", "-n", str(RANKS))
    return Variant(prefix=prefix, env=_threads(tuning))


def make_torchrun(tuning: HandTuning) -> Variant:
    """Return torchrun with the number of threads."""
    program = find_torchrun(tuning.torchrun)
    prefix = (program, "--standalone", "--no-python", f"--nproc-per-node={RANKS}")
    return Variant(prefix=prefix, env=_threads(tuning))


def make_ompbind(_: HandTuning) -> Variant:
    """Return the ompbind of this Python environment, with only the number of ranks."""
    program = str(Path(sys.executable).with_name("ompbind"))
    return Variant(prefix=(program, "run", "-n", str(RANKS), "--"), env={})


def make_places(tuning: HandTuning) -> Variant:
    """Return the settings that are often recommended: the same places for both ranks."""
    env = {"OMP_PLACES": "cores", "OMP_PROC_BIND": "close", **_threads(tuning)}
    return Variant(prefix=make_shell_launcher([""] * RANKS), env=env)


def _threads(tuning: HandTuning) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(tuning.threads)}


MAKERS: Mapping[str, Callable[[HandTuning], Variant]] = {
    "default": lambda _: Variant(prefix=make_shell_launcher([""] * RANKS), env={}),
    "ompbind": make_ompbind,
    "openmpi": make_openmpi,
    "torchrun": make_torchrun,
    "taskset": make_taskset,
    "places": make_places,
}


def make_variants(names: tuple[str, ...], tuning: HandTuning) -> dict[str, Variant]:
    """Return the variants that are available; print a line for each other variant."""
    variants = {}
    for name in names:
        try:
            variants[name] = MAKERS[name](tuning)
        except Unavailable as why:
            print(f"{name}: left out, {why}")
    return variants
