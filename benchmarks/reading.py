"""Measure reading a machine: CPU time and memory for 4,096 CPUs, and start-up time for this machine.

    python benchmarks/reading.py [--rounds N]

Each measurement uses a new process, with Python's garbage collector off as in ompbind. CPU time covers
`read_machine` and the modules that it loads. Memory is the peak resident memory of the process, and its peak
before reading. The start-up time of this machine is the wall time of the same, without modules that ompbind
has already loaded (click, and the records). Devices are read only on request.
"""

import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import ROOT, read_rounds
from ompbind.machine.read import read_machine
from ompbind.report.topology import render_json
from tests.device_trees import DeviceTree
from tests.machines import Shape, write_tree

HUGE = Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2)

FUNCTIONS, DEVICES = 200, 16
"""PCI functions of a server, and how many of them are GPUs or network interfaces."""

READ = """
import gc, resource, sys, time
import click, ompbind.commands.rank_command, ompbind.planning.planner
gc.disable()
spent = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
kib = lambda: next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
before, cpu, begin = kib(), spent(), time.perf_counter()
from ompbind.machine.read import read_machine
machine = read_machine(sys.argv[1], devices=len(sys.argv) > 2)
print(time.perf_counter() - begin, spent() - cpu, before, kib(), len(machine.online))
"""


def measure(source: str, rounds: int, *, devices: bool = False) -> list[float]:
    """Read a source in new processes; return medians: wall s, CPU s, KiB before, KiB after, CPUs."""
    command = [sys.executable, "-c", READ, source, *(["devices"] if devices else [])]
    columns: list[list[float]] = []
    for _ in range(rounds):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        columns.append([float(word) for word in done.stdout.split()])
    return [statistics.median(column) for column in zip(*columns, strict=True)]


def make_sources(directory: Path) -> list[tuple[str, str]]:
    """Write the same machine in each format; return the title and path of each."""
    tree = write_tree(directory / "machine", HUGE)
    with tarfile.open(directory / "machine.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(tree, arcname="machine")
    (directory / "machine.json").write_text(render_json(read_machine(str(tree))))
    named = [(name, str(directory / name)) for name in ("machine", "machine.tar.gz", "machine.json")]
    return [*named, ("synthetic", "synthetic:pack:8 numa:4 l3:4 core:16 pu:2")]


def write_devices(directory: Path) -> Path:
    """Write a server with 8 GPUs and 8 network interfaces below bridges, among other functions."""
    tree = DeviceTree(Shape(packages=2, nodes=4, cores=16, smt=2))
    for number in range(FUNCTIONS - 2 * DEVICES):
        tree.add(f"0000:ff:{number // 8:02x}.{number % 8}", "0880", "8086", node=-1)
    for number in range(DEVICES):
        path = f"0000:{number * 8:02x}:01.0/0000:{number * 8 + 1:02x}:00.0"
        tree.add(path.partition("/")[0], "0604", "8086", node=number // 2)
        kind, names = ("0302", "drm/renderD1") if number % 2 else ("0200", "net/eth infiniband/mlx5_")
        named = " ".join(f"{name}{number}" for name in names.split())
        address = tree.add(path, kind, node=number // 2, names=named)
        if number % 2:
            tree.add_nvidia(address, f"GPU-00000000-0000-0000-0000-{number:012x}", number)
    return tree.write(directory)


def main() -> None:
    """Run all measurements."""
    rounds = read_rounds(__doc__, default=9)
    with tempfile.TemporaryDirectory() as name:
        for title, source in make_sources(Path(name)):
            _, cpu_s, before, after, cpus = measure(source, rounds)
            print(f"{cpus:,.0f} CPUs from {title:15} {cpu_s * 1000:6.0f} ms of CPU time, "
                  f"{after / 1024:4.0f} MiB ({before / 1024:.0f} before)")  # fmt: skip
        directory = str(write_devices(Path(name) / "devices"))
        without, read = (measure(directory, rounds * 2, devices=devices)[0] for devices in (False, True))
        print(f"{DEVICES} devices among {FUNCTIONS} PCI functions add {(read - without) * 1000:.1f} ms")
    wall_s, *_ = measure("live", rounds * 4)
    with_devices_s, *_ = measure("live", rounds * 4, devices=True)
    print(
        f"this machine adds {wall_s * 1000:.1f} ms to start-up, {with_devices_s * 1000:.1f} ms with devices"
    )


if __name__ == "__main__":
    main()
