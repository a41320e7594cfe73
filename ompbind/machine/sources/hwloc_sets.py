"""Sets of CPUs and of NUMA nodes as hwloc writes them in XML."""

from ompbind.cpuset import CpuSet


def parse_cpuset(text: str | None) -> CpuSet | None:
    """Parse a set like "0x00000003,,0xff"; None if it is absent or "0xf...f", which means all CPUs."""
    if text is None or text.startswith("0xf...f"):
        return None
    words = (word.strip().removeprefix("0x").rjust(8, "0") for word in text.split(","))
    return CpuSet.from_mask(",".join(words))
