"""Plans compared with hwloc-distrib, on described and recorded machines: no measure is worse."""

import pytest

from tests.distrib import DESCRIBED, as_xml, compare, counts, read
from tests.live.conftest import required
from tests.long import LONG
from tests.recordings import name_of, recorded

SAMPLE = {
    "hwloc-16amd64-8n2c-cpusets", "hwloc-20s390-2g6s4c", "hwloc-8em64t-2s4c-asymcaches", "syn-dies-2s2d2n",
    "rec-arrowlake-225u", "vm-x86-2s8c2t-snc4-hbm",
}  # fmt: skip
RECORDED = [*recorded("xml/*.xml"), *recorded("dumps/*.tar.gz")]
SOURCES = [
    *DESCRIBED,
    *(pytest.param(path, marks=() if name_of(path) in SAMPLE else pytest.mark.long) for path in RECORDED),
]


def corners(ranks):
    """Few and many ranks, and numbers that divide most machines, or no machine."""
    return sorted({*ranks[:6], *ranks[-3:], *({12, 13, 16, 31, 48} & {*ranks})})


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_no_measure_is_worse_than_with_hwloc_distrib(tmp_path, source):
    """Measures are compared in their order, and each by itself if both divide all cores equally."""
    required("lstopo-no-graphics", "lstopo")
    required("hwloc-distrib")
    path = as_xml(source, tmp_path)
    if path is None:
        pytest.skip("neither hwloc nor ompbind can read it")
    machine = read(path)
    for ranks in counts(machine) if LONG else corners(counts(machine)):
        ours, theirs = compare(machine, path, ranks)
        assert ours.sort_key <= theirs.sort_key, ranks
        if ours.sort_key[:3] == theirs.sort_key[:3]:
            assert all(ours <= theirs for ours, theirs in zip(ours.sort_key, theirs.sort_key, strict=True)), (
                ranks
            )
