"""Recordings of real machines, for the tests that use them if they are available."""

import os
from pathlib import Path
from typing import Any

import pytest

RECORDINGS = Path(os.environ.get("OMPTEST_TOPOLOGIES") or Path(__file__).parent / "../../shared/topologies")
"""A directory with `dumps/NAME.tar.gz`, `oracle/NAME.json`, `xml/NAME.xml` and `compare.json`."""


SAMPLE = (
    "ghw-arm64-vm", "ghw-i7-1270P", "ghw-s390x-snapshot", "hwloc-16amd64-8n2c-cpusets",
    "hwloc-16em64t-4s2c2t-offlines", "hwloc-20s390-2g6s4c", "hwloc-2i386-2c-nohugepage",
    "hwloc-8em64t-2s4c-asymcaches", "hwloc-fakeheteromemtiers", "lscpu-arm-A510-A710-A715-X3",
    "rec-arrowlake-225u", "rec-power8-gpu", "rec-uv-8n-disallowed", "syn-cg1-twosockets",
    "syn-dies-2s2d2n", "vm-x86-2s8c2t-snc4-hbm",
    "flux-tuo.CPX", "hwlocx86-AMD-15h-Piledriver-4xOpteron-6348", "hwlocx86-Intel-RaptorLake-Corei7-1370P",
    "hwlocxml-16-2gr2gr2n2c+misc", "hwlocxml-cxlmem+dax.v3", "hwlocxml-fakeheterodistances",
    "hwlocxml-power8gpudistances", "mpibind-coral-lassen", "mpibind-knl-snc4-cache-hwloc1",
)  # fmt: skip
"""Small dumps, and XML, that differ in kinds of cores, SMT, books, dies, memory, missing numbers, cgroups."""


def recorded(pattern: str) -> list[Path]:
    """The recordings that match a pattern, by name; none if the directory does not exist."""
    return sorted(RECORDINGS.glob(pattern))


def sampled(paths: list[Path]) -> list[Any]:
    """Make parameters for slow tests: recordings that are not in SAMPLE are marked as long."""
    return [
        pytest.param(path, id=name_of(path), marks=() if name_of(path) in SAMPLE else pytest.mark.long)
        for path in paths
    ]


def name_of(path: Path) -> str:
    """The name of a recording, without the suffix of its file."""
    return path.name.removesuffix(".xml").removesuffix(".tar.gz")
