"""Core kinds: the facts that distinguish them, and their use in plans; and the domains of a level."""

import json

import pytest

from ompbind.cli.topo import render_json
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MaskError, PlanError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import Level, make_domains
from ompbind.machine.read.linux import read_recorded
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.topology import render_limits
from tests.machines import DictRoot, Shape, make_machine, shape_files
from tests.tables import rows

UNREPORTED = "this machine does not report kinds of cores"
CPU = "sys/devices/system/cpu"


def shown(kinds):
    return " ".join(f"{kind.name[0]}:{kind.cpus}:{kind.strength}:{kind.source}" for kind in kinds)


@pytest.mark.parametrize(("columns", "expected"), rows("""
    capacity=1024,1024,1024,1024 |
    frequency=5200,5000,5000,5200 |
    frequency=5881,5659,5371,5083 |
    frequency=4000,3500,3500,3500 |
    frequency=5000,5600,5000,5600 |
    frequency=3900,5000,3900,5200 | p:1,3:1024:frequency e:0,2:799:frequency
    capacity=256,1024,256,1024 frequency=2,1,2,1 | p:1,3:1024:capacity e:0,2:256:capacity
    capacity=280,855,855,1024 | p:3:1024:capacity p:1-2:855:capacity e:0:280:capacity
    capacity=1024,512,,512 frequency=4,4,4,4 |
    type=p,p,e,e | p:0-1:1024:type e:2-3:512:type
    type=p,p,e,e frequency=5000,5200,3900,3900 | p:0-1:1024:type e:2-3:768:type
    type=e,e,e,e |
"""))  # fmt: skip
def test_kinds_are_found_by_type_then_capacity_then_frequency(columns, expected):
    """Favoured cores, faster than others by up to 14 %, are of the same kind; all are unknown if one is."""
    words = {"p": "performance", "e": "efficiency"}
    cores = [{"cpus": CpuSet([cpu])} for cpu in range(4)]
    for column in columns.split():
        name, _, values = column.partition("=")
        for core, value in zip(cores, values.split(","), strict=True):
            core[name] = words.get(value) or (int(value) if value else None)
    assert shown(make_kinds(make_machine(Shape(cores=4)), [CoreTraits(**core) for core in cores])) == expected


@pytest.mark.parametrize(("cores", "caches", "others", "expected"), rows("""
    0-1 2-3 4 5 6 7     | 0-1 2-3 4-7     |                               | p:0-3:1024 e:4-7:512
    0-1 2-3 4 5 6 7     | 0-1 2-3 4-7     | 5200 5000 4600 4600 4600 4600 | p:0-3:1024 e:4-7:906
    0 1 2 3 4 5         | 0 1 2-5         |                               | p:0-1:1024 e:2-5:512
    0-1 2-3 4 5 6 7 8 9 | 0-1 2-3 4-7 8-9 |                               | p:0-3:1024 e:4-9:512
    0-1 2-3 4 5 6 7     |                 |                               |
    0-1 2-3 4 5 6 7     | 0-1 2-3 4-7     | 5000 5000 5000 5000 5000 5000 |
    0-1 2-3 4 5 6 7     | 0-1 2-3 4-7     | offline                       |
    0-1 2-3 4 5 6 7     | 0-1 2-3 4-7     | packages                      |
    0-1 2-3 4 5 7 8     | 0-1 2-3 4-5,7-8 |                               |
    0-1 2-3 4 5 6 7     | 0-3 4-7         |                               |
    0-1 2-3 4 5         | 0-1 2-3 4 5     |                               |
    0-1 2 3 4 5 6       | 0-1 2 3-6       |                               |
    0-1 2-3 4 5 6       | 0-1 2-3 4-6     |                               |
    0 1 2 3             | 0 1 2-3         |                               |
    0 1 2 3 4 5         | 0-3 4-5         |                               |
    0-1 2-3 4-5         | 0-1 2-5         |                               |
"""))  # fmt: skip
def test_kinds_are_inferred_where_only_a_hybrid_processor_looks_like_this(cores, caches, others, expected):
    """Offline or hidden CPUs, virtual machines and clusters with a common cache do not look like this."""
    cores, caches = ([CpuSet.from_list(part) for part in text.split()] for text in (cores, caches))
    online, is_apart = union(cores), others == "packages"
    packages = [CpuSet(range(4)), CpuSet(range(4, 10))] if is_apart else [online]
    parts = {Level.CORE: cores, Level.L2: caches, Level.PACKAGE: packages}
    domains = make_domains(online, {level: [(None, cpus) for cpus in sets] for level, sets in parts.items()})
    machine = make_machine(Shape(), online=online, domains=domains)
    machine = machine.replace(offline=CpuSet([10] if others == "offline" else []))
    speeds = map(int, others.split()) if others[:1].isdigit() else [None] * len(cores)
    traits = [CoreTraits(cpus=cpus, frequency=speed) for cpus, speed in zip(cores, speeds, strict=True)]
    assert shown(make_kinds(machine, traits)).replace(":topology", "") == expected


def hybrid(**files):
    """Two cores with two CPUs each, numbered 0-3, and four with one CPU, as on Intel's hybrid processors."""
    tree = shape_files(Shape(cores=8))
    for cpu in range(4):
        tree[f"{CPU}/cpu{cpu}/topology/core_cpus"] = "3" if cpu < 2 else "c"
    return read_recorded(DictRoot({**tree, "sys/devices/cpu_core/cpus": "0-3\n", **files}))


def test_kinds_are_read_from_types_or_frequencies():
    machine = hybrid(**{"sys/devices/cpu_atom/cpus": "4-6\n"})
    assert shown(machine.kinds) == "p:0-3:1024:type e:4-7:512:type", "all other cores are efficiency cores"
    speeds = {f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq": f"{52 - cpu // 2 * 13}00000\n" for cpu in range(4)}
    inferred = read_recorded(DictRoot({**shape_files(Shape(cores=4)), **speeds}))
    assert shown(inferred.kinds) == "p:0-1:1024:frequency e:2-3:768:frequency"
    for each, text in ((inferred, "inferred from frequencies"), (machine, None)):
        assert [str(text) in line for line in render_limits(each)] == [text is not None] * 2
        assert [row["inferred"] for row in json.loads(render_json(each))["kinds"]] == [text is not None] * 2
        for core_kind in ("all", "efficiency"):
            notes = make_plan(each, Request(core_kind=core_kind)).notes
            found = [note.text for note in notes if note.code == "core-kind"]
            assert found == [f"{UNREPORTED}: they are {text}"] * (text is not None)


def test_a_request_without_a_core_of_the_kind_is_an_error():
    request = Request(ranks=2, core_kind="efficiency", mask=parse_mask("4-5|0-1"))
    with pytest.raises(MaskError, match="this part of the mask names no efficiency core") as caught:
        make_plan(hybrid(), request)
    assert caught.value.span == (4, 7)
    assert "efficiency: CPUs 4-7" in caught.value.hint
    machine = make_machine(Shape(cores=4))
    assert str(make_plan(machine, Request(core_kind="performance")).placements[0].cpuset) == "0-3"
    (note,) = make_plan(machine, Request(core_kind="performance")).notes
    assert note.text == f"{UNREPORTED}: --core-kind performance excludes no core"
    for mask in (None, parse_mask("0")):
        with pytest.raises(PlanError, match=UNREPORTED):
            make_plan(machine, Request(core_kind="efficiency", mask=mask))


@pytest.mark.parametrize(("request_", "start"), [
    (Request(ranks=1), "several kinds of cores in rank 0"),
    (Request(ranks=2, mask=parse_mask("0-3|4-7")), "several kinds of cores, ranks differ"),
    (Request(ranks=1, core_kind="performance"), None),
    (Request(ranks=2, mask=parse_mask("4|5")), None),
])  # fmt: skip
def test_a_plan_that_mixes_kinds_says_so(request_, start):
    texts = [note.text for note in make_plan(hybrid(), request_).notes if note.code == "mixed-kinds"]
    assert [text.startswith(start or "?") for text in texts] == [True] * (start is not None)


@pytest.mark.parametrize(("online", "given", "made"), rows("""
    0,1,5 | 0-2         | 0-1 5
    0-4   | 0-2 2-3 0,3 | 0-2 3 4
    0-1   | 0-1 8 0-1   | 0-1
"""))  # fmt: skip
def test_domains_of_a_level_are_a_partition_of_the_online_cpus(online, given, made):
    """An online CPU in no core is a core of its own; what is empty, repeated or overlaps is left out."""
    parts = [(None, CpuSet.from_list(text)) for text in given.split()]
    domains = make_domains(CpuSet.from_list(online), {Level.CORE: parts})
    assert [(core.index, str(core.cpus)) for core in domains] == [*enumerate(made.split())]
