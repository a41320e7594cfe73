"""Plans compared with those of hwloc-distrib, on described and recorded machines: no measure is worse."""

import pytest

from tests.distrib import DESCRIBED, RECORDED, as_xml, compare, counts, read
from tests.live.conftest import required


@pytest.mark.parametrize("source", [*DESCRIBED, *(pytest.param(one, id=one.name) for one in RECORDED)])
def test_no_measure_is_worse_than_that_of_hwloc_distrib(tmp_path, source):
    """Measures are compared in their order, and one by one where both share out all cores equally."""
    required("lstopo-no-graphics", "lstopo")
    required("hwloc-distrib")
    path = as_xml(source, tmp_path)
    if path is None:
        pytest.skip("neither hwloc nor ompbind can read it")
    machine = read(path)
    for ranks in counts(machine):
        ours, theirs = compare(machine, path, ranks)
        assert ours.order <= theirs.order, ranks
        if ours.order[:3] == theirs.order[:3]:
            worse = [pair for pair in zip(ours.order, theirs.order, strict=True) if pair[0] > pair[1]]
            assert not worse, (ranks, ours, theirs)
