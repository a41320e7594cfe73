"""Sample machines, for examples, tests and plans without a recording: `sample_machines/NAME.json`.

Each file is what `ompbind topo --format json` printed for the machine. To add a sample: such a file, and one
row in `SAMPLES`.
"""

import json
import pkgutil

from ompbind.errors import MachineError
from ompbind.machine.model import Machine
from ompbind.machine.read.topo_json import make_machine_from_json
from ompbind.record import Record
from ompbind.text import suggest_name

SAMPLE = "sample:"
"""The prefix of a topology source that names a sample machine."""


class SampleMachine(Record):
    """A sample machine: `summary` are a few words for lists, `model` says exactly what it is."""

    name: str
    summary: str
    model: str


def read_sample(source: str, *, devices: bool = False) -> Machine:
    """Read the machine that a topology source such as "sample:epyc-2p" names; all its CPUs are allowed.

    Raises MachineError with a similar name and all names.
    """
    name = source.removeprefix(SAMPLE)
    names = [sample.name for sample in SAMPLES]
    if name not in names:
        message = f"there is no sample machine {name!r}" if name else f"{source!r} lacks a name"
        known = "; ".join(f"{SAMPLE}{sample.name} ({sample.summary})" for sample in SAMPLES)
        near = suggest_name(name, names)
        question = f"did you mean {SAMPLE}{near}? Otherwise " if near else ""
        raise MachineError(message, hint=f"{question}use one of: {known}")
    data = pkgutil.get_data(__package__, f"sample_machines/{name}.json")
    return make_machine_from_json(json.loads(data or b""), source, devices=devices)


SAMPLES = (
    SampleMachine(
        name="two-sockets",
        summary="16 CPUs, 2 packages",
        model="a small server: 2 packages with 4 cores each, 2 hardware threads per core, 1 GiB per package",
    ),
    SampleMachine(
        name="four-gpus",
        summary="32 CPUs, 2 packages, 4 GPUs, 2 NICs",
        model="a small server: 2 packages with 8 cores, 2 GPUs and a NIC each, 2 hardware threads per core",
    ),
    SampleMachine(
        name="eight-nodes",
        summary="32 CPUs, 2 packages, 8 NUMA nodes, 4 GPUs",
        model="a small server: 2 packages with 4 NUMA nodes each, 4 cores per node; a GPU at each of the"
        " nodes 1, 2, 6 and 7",
    ),
    SampleMachine(
        name="epyc-2p",
        summary="384 CPUs, 2 x AMD EPYC 9654",
        model="2 x AMD EPYC 9654: 96 cores each, an L3 cache per 8 cores, 4 NUMA nodes per package"
        " (NPS4), 1.5 TiB; the second hardware thread of core N is CPU N+192",
    ),
    SampleMachine(
        name="xeon-max-2p",
        summary="224 CPUs, 2 x Intel Xeon Max 9480, HBM as own nodes",
        model="2 x Intel Xeon CPU Max 9480 in flat mode with SNC4: 56 cores each, 4 NUMA nodes per"
        " package with 14 cores and 128 GiB each, and a NUMA node with 16 GiB of HBM and no CPUs"
        " beside each of them",
    ),
    SampleMachine(
        name="dgx-a100",
        summary="256 CPUs, 8 NUMA nodes, 8 GPUs, 8 NICs",
        model="NVIDIA DGX A100 without its storage network: 2 x AMD EPYC 7742 with 64 cores each, an L3"
        " cache per 4 cores, 4 NUMA nodes per package, 8 A100 GPUs and 8 InfiniBand interfaces near"
        " 4 of the nodes",
    ),
    SampleMachine(
        name="core-i9",
        summary="32 CPUs, hybrid: Intel Core i9-13900K",
        model="Intel Core i9-13900K, a hybrid desktop processor: 8 performance cores with 2 hardware"
        " threads each, 16 efficiency cores with one, an L2 cache per 4 efficiency cores, 64 GiB",
    ),
    SampleMachine(
        name="grace-2p",
        summary="144 CPUs, Arm: NVIDIA Grace CPU Superchip",
        model="NVIDIA Grace CPU Superchip: 2 x 72 Arm Neoverse V2 cores with one hardware thread each, an"
        " L3 cache and 240 GiB per 72 cores",
    ),
    SampleMachine(
        name="power9-2p",
        summary="160 CPUs, IBM POWER9 with SMT4",
        model="IBM Power System AC922 without its GPUs: 2 x 20 POWER9 cores with 4 hardware threads each,"
        " L2 and L3 caches per 2 cores, NUMA nodes 0 and 8 with 256 GiB each",
    ),
    SampleMachine(
        name="z15-partition",
        summary="96 CPUs, IBM z15 with books and drawers",
        model="a logical partition of an IBM z15: 2 drawers with 2 books each, 2 packages per book, 6"
        " cores per package, 2 hardware threads per core, one NUMA node with 256 GiB; firmware"
        " assigns real partitions less evenly",
    ),
)
"""All sample machines: three small ones, then models of real machines."""
