"""Plans compared with hwloc-distrib, on described and recorded machines: no measure is worse."""

import pytest

from tests.distrib import DESCRIBED, as_xml, compare, counts, read
from tests.live.conftest import required
from tests.long import LONG
from tests.recordings import name_of, recorded, sampled


def name(source):
    return source if isinstance(source, str) else name_of(source)


SOURCES = [*DESCRIBED, *sampled(recorded("xml/*.xml")), *sampled(recorded("dumps/*.tar.gz"))]


def corners(ranks):
    """Few and many ranks, and numbers that divide most machines, or no machine."""
    return sorted({*ranks[:8], *ranks[-6:], *({12, 13, 16, 24, 31, 32, 48, 64} & {*ranks})})


@pytest.mark.parametrize("source", SOURCES, ids=name)
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
            worse = [pair for pair in zip(ours.sort_key, theirs.sort_key, strict=True) if pair[0] > pair[1]]
            assert not worse, (ranks, ours, theirs)
