"""Recordings of real machines, for the tests that use them if they are available."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ompbind.machine.model import Machine
from ompbind.machine.read import read_machine

RECORDINGS = Path(os.environ.get("OMPTEST_TOPOLOGIES") or Path(__file__).parent / "../../shared/topologies")
"""A directory with `dumps/NAME.tar.gz`, `oracle/NAME.json`, `xml/NAME.xml` and `compare.json`."""

NO_RECORDINGS = "recordings of machines are not in this repository: OMPTEST_TOPOLOGIES names their directory"
ABSENT = pytest.param(None, id="absent", marks=pytest.mark.skip(NO_RECORDINGS))
"""The parameter of tests that find no recordings."""

SAMPLE = (
    "ghw-i7-1270P", "hwloc-16amd64-8n2c-cpusets", "hwloc-20s390-2g6s4c", "hwloc-8em64t-2s4c-asymcaches",
    "hwloc-fakeheteromemtiers", "rec-power8-gpu", "rec-uv-8n-disallowed", "syn-cg1-twosockets",
    "flux-tuo.CPX", "hwlocx86-Intel-RaptorLake-Corei7-1370P", "hwlocxml-fakeheterodistances",
    "mpibind-coral-lassen", "mpibind-knl-snc4-cache-hwloc1",
    "hwloc-32em64t-2n8c+dax+nvme+mic+dimms", "hwloc-fakepcilocalities",
)  # fmt: skip
"""Small dumps, XML and dumps with devices that differ in kinds of cores, SMT, books, memory and cgroups."""


def recorded(pattern: str) -> list[Path]:
    return sorted(RECORDINGS.glob(pattern))


def sampled(paths: list[Path]) -> list[Any]:
    """Make parameters for slow tests: recordings that are not in SAMPLE are marked as long."""
    return [
        pytest.param(path, id=name_of(path), marks=() if name_of(path) in SAMPLE else pytest.mark.long)
        for path in paths
    ] or [ABSENT]


def name_of(path: Path) -> str:
    return path.name.removesuffix(".xml").removesuffix(".tar.gz")


ANSWERS = {path.name.removesuffix(".devices.json"): path for path in recorded("devices/*.devices.json")}
"""hwloc's answer for each recorded machine with devices, by the name of the machine."""


@cache
def read_with_devices(name: str) -> Machine:
    archive = RECORDINGS / f"devices/{name}.tar.gz"
    return read_machine(str(archive if archive.exists() else RECORDINGS / f"xml/{name}.xml"), devices=True)
