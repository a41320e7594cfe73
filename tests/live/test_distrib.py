"""Plans compared with hwloc-distrib, on described machines: no measure is worse."""

import pytest

from tests.distrib import DESCRIBED, compare, counts, read
from tests.live.conftest import required
from tests.long import LONG


@pytest.mark.parametrize("source", DESCRIBED)
def test_no_measure_is_worse_than_with_hwloc_distrib(tmp_path, source):
    required("lstopo-no-graphics", "lstopo")
    required("hwloc-distrib")
    path = tmp_path / "machine.xml"
    machine = read(source, path)
    ranks = counts(machine)
    few = {*ranks[:6], *ranks[-3:], *({12, 13, 16, 31, 48} & {*ranks})}
    for number in ranks if LONG else sorted(few):
        ours, theirs = (found.sort_key for found in compare(machine, path, number))
        assert ours <= theirs, number
        assert ours[:3] != theirs[:3] or all(a <= b for a, b in zip(ours, theirs, strict=True)), number
