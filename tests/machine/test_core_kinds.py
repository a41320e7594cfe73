"""Core kinds: the facts that distinguish them, and their use in plans."""

import pytest

from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.sources.linux.reader import read_recorded
from ompbind.masks.parse import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import DictRoot, Shape, make_machine, shape_files

CPU = "sys/devices/system/cpu"


def traits(**columns):
    count = len(next(iter(columns.values())))
    return [
        CoreTraits(cpus=CpuSet([cpu]), **{name: values[cpu] for name, values in columns.items()})
        for cpu in range(count)
    ]


def shown(kinds):
    return [(kind.name[0], str(kind.cpus), kind.strength, kind.source) for kind in kinds]


P, E = "performance", "efficiency"


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"capacity": [None] * 4}, []),
        ({"capacity": [1024] * 4}, []),
        ({"frequency": [5200, 5000, 5000, 5200]}, []),  # favoured cores are of the same kind
        ({"frequency": [5881, 5659, 5371, 5083]}, []),
        ({"frequency": [3900, 5000, 3900, 5200]},
         [("p", "1,3", 1024, "frequency"), ("e", "0,2", 799, "frequency")]),
        ({"capacity": [256, 1024, 256, 1024], "frequency": [2, 1, 2, 1]},
         [("p", "1,3", 1024, "capacity"), ("e", "0,2", 256, "capacity")]),
        ({"capacity": [280, 855, 855, 1024]},
         [("p", "3", 1024, "capacity"), ("p", "1-2", 855, "capacity"), ("e", "0", 280, "capacity")]),
        ({"capacity": [1024, 512, None, 512], "frequency": [4, 4, 4, 4]}, []),  # unknown for one CPU
        ({"type": [P, P, E, E]}, [("p", "0-1", 1024, "type"), ("e", "2-3", 512, "type")]),
        ({"type": [P, P, E, E], "frequency": [5000, 5200, 3900, 3900]},
         [("p", "0-1", 1024, "type"), ("e", "2-3", 768, "type")]),
        ({"type": [E, E, E, E]}, []),
    ],
)  # fmt: skip
def test_kinds_are_found_by_type_then_capacity_then_frequency(columns, expected):
    assert shown(make_kinds(traits(**columns))) == expected


def hybrid(**files):
    """Two cores with two CPUs each, numbered 0-3, and four with one CPU, as on Intel's hybrid processors."""
    tree = shape_files(Shape(cores=8))
    for cpu in range(4):
        tree[f"{CPU}/cpu{cpu}/topology/core_cpus"] = "3" if cpu < 2 else "c"
    return read_recorded(DictRoot({**tree, "sys/devices/cpu_core/cpus": "0-3\n", **files}))


def test_all_other_cores_are_efficiency_cores():
    machine = hybrid(**{"sys/devices/cpu_atom/cpus": "4-6\n"})
    assert shown(machine.kinds) == [("p", "0-3", 1024, "type"), ("e", "4-7", 512, "type")]


def test_frequencies_decide_without_types():
    tree = shape_files(Shape(cores=4))
    for cpu in range(4):
        tree[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "5000000\n" if cpu < 2 else "3900000\n"
    kinds = read_recorded(DictRoot(tree)).kinds
    assert shown(kinds) == [("p", "0-1", 1024, "frequency"), ("e", "2-3", 799, "frequency")]


@pytest.mark.parametrize(
    ("kind", "mask", "smt", "cpus"),
    [
        ("all", None, "auto", "0,2,4-7"),
        ("performance", None, "auto", "0,2"),
        ("performance", None, "all", "0-3"),
        ("efficiency", None, "auto", "4-7"),
        ("efficiency", "2-5", "auto", "4-5"),
        ("performance", "all,^0", "all", "1-3"),
    ],
)
def test_a_requested_kind_of_core_is_used(kind, mask, smt, cpus):
    request = Request(ranks=1, core_kind=kind, smt=smt, mask=parse_mask(mask) if mask else None)
    assert str(union(placement.cpuset for placement in make_plan(hybrid(), request).placements)) == cpus


def test_a_part_without_a_core_of_the_kind_is_marked():
    request = Request(ranks=2, core_kind="efficiency", mask=parse_mask("4-5|0-1"))
    with pytest.raises(MaskError, match="this part of the mask names no efficiency core") as caught:
        make_plan(hybrid(), request)
    assert caught.value.span == (4, 7)
    assert "efficiency: CPUs 4-7" in caught.value.hint


def test_machines_with_one_kind_have_performance_cores_only():
    machine = make_machine(Shape(cores=4))
    assert str(make_plan(machine, Request(core_kind="performance")).placements[0].cpuset) == "0-3"
    with pytest.raises(PlanError, match="no efficiency core"):
        make_plan(machine, Request(core_kind="efficiency"))


@pytest.mark.parametrize(
    ("request_", "start"),
    [
        (Request(ranks=1), "rank 0 mixes kinds of cores"),
        (Request(ranks=2, mask=parse_mask("0-3|4-7")), "ranks differ in kinds of cores"),
        (Request(ranks=1, core_kind="performance"), None),
        (Request(ranks=2, mask=parse_mask("4|5")), None),
    ],
)
def test_a_plan_that_mixes_kinds_says_so(request_, start):
    texts = [note.text for note in make_plan(hybrid(), request_).notes if note.code == "mixed-kinds"]
    assert [text.startswith(start or "?") for text in texts] == [True] * (start is not None)
