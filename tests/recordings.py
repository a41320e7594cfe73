"""Recordings of real machines, for tests that can use them; no test needs them."""

import os
from pathlib import Path

RECORDINGS = Path(os.environ.get("OMPBIND_TOPOLOGIES") or Path(__file__).parent / "../../shared/topologies")
"""A folder with `dumps/NAME.tar.gz`, `oracle/NAME.json`, `xml/NAME.xml` and `compare.json`."""


def recorded(pattern: str) -> list[Path]:
    """The recordings that a pattern finds, by name; none where there is no such folder."""
    return sorted(RECORDINGS.glob(pattern))
