"""Core kinds: the facts that distinguish them, and their use in plans; and the domains of a level."""

import json
import re

import pytest

from ompbind.cli.topo import render_json
from ompbind.cpuset import CpuSet, union
from ompbind.errors import MachineError, MaskError, PlanError
from ompbind.machine.core_kinds import CoreTraits, make_kinds
from ompbind.machine.model import Level, make_domains
from ompbind.machine.read.linux import read_recorded
from ompbind.machine.read.sources import FILE_FORMATS
from ompbind.machine.read.texts import read_cpuinfo, read_lstopo
from ompbind.machine.read.topo_json import make_machine_from_json
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
    frequency=4000,3500,3500,3500 |
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
    0-1 2 3 4 5 6       | 0-1 2 3-6       |                               |
    0-1 2-3 4 5 6       | 0-1 2-3 4-6     |                               |
    0 1 2 3             | 0 1 2-3         |                               |
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


def two_caches(**files):
    """Sixteen cores in two L3 caches, of which the first is larger, and the second has the preferred core."""
    tree = shape_files(Shape(l3s=2, cores=8))
    for cpu in range(16):
        tree[f"{CPU}/cpu{cpu}/cache/index2/size"] = "98304K" if cpu < 8 else "32768K"
        tree[f"{CPU}/cpu{cpu}/cpufreq/amd_pstate_prefcore_ranking"] = str(236 - cpu + 20 * (cpu > 7))
    return read_recorded(DictRoot(tree | files))


def same_caches():
    return two_caches(**{f"{CPU}/cpu{cpu}/cache/index2/size": "32768K" for cpu in range(16)})


@pytest.mark.parametrize(("make", "choice", "cpus", "note"), [
    (two_caches, "cache", "0-7", ""),
    (two_caches, "fast", "8-15", ""),
    (two_caches, "performance", "0-15", UNREPORTED),
    (same_caches, "cache", "0-15", "all cores have the same share of L3 cache"),
    (hybrid, "fast", "0-3", ""),
    (hybrid, "cache", "0-7", "all cores have the same share of L3 cache"),
    (lambda: make_machine(Shape(cores=4)), "fast", "0-3", "all cores are equally fast"),
])  # fmt: skip
def test_cores_are_chosen_by_their_cache_or_speed_and_a_saved_machine_gives_the_same_plan(
    make, choice, cpus, note
):
    machine = make()
    for each in (machine, make_machine_from_json(json.loads(render_json(machine)), "saved")):
        plan = make_plan(each, Request(core_kind=choice, smt="all"))
        assert str(plan.placements[0].cpuset) == cpus
        texts = [note.text for note in plan.notes if note.code == "core-kind"]
        assert [text.startswith(note) for text in texts] == [True] * bool(note)
    if not note:
        with pytest.raises(MaskError, match=f"names no {choice} core") as caught:
            make_plan(
                machine,
                Request(core_kind=choice, mask=parse_mask(str(machine.online - CpuSet.from_list(cpus)))),
            )
        assert f"CPUs {cpus}" in caught.value.hint


def test_pasted_lstopo_has_sizes_of_caches_also_quoted_and_needs_its_indentation():
    text = "Package L#0\n  L3 L#0 (32MB)\n    Core L#0\n      PU L#0 (P#0)\n"
    text += "  L3 L#1 (96MB)\n    Core L#1\n      PU L#1 (P#1)\n"
    for each in (text, re.sub("^", "> >  ", text, flags=re.M)):
        (read,) = (form.read for form in FILE_FORMATS if form.has(each.encode()))
        assert str(read(each.encode(), "forum", False).cpus_of_kind("cache")) == "1"
    with pytest.raises(MachineError, match="indentation is lost"):
        read_lstopo(re.sub("^ +", "", text, flags=re.M), "forum")


def midr(cpus, text):
    return {f"{CPU}/cpu{cpu}/regs/identification/midr_el1": text for cpu in cpus}


def cpuinfo(maker, *parts):
    block = "processor\t: {}\nCPU implementer\t: {}\nCPU architecture: 8\nCPU part\t: {}\n\n"
    return {"proc/cpuinfo": "".join(block.format(cpu, maker, part) for cpu, part in enumerate(parts))}


@pytest.mark.parametrize(("files", "kinds", "remark"), [
    (midr(range(4), "0x411fd050") | midr(range(4, 8), "0x00000000413fd0b1\n"), "p:4-7:1024 e:0-3:512", ""),
    (cpuinfo("0x41", *["0xd05"] * 6, *["0xd0b"] * 2), "p:6-7:1024 e:0-5:512", ""),
    (cpuinfo("0x61", *["0x022"] * 4, *["0x023"] * 4), "p:4-7:1024 e:0-3:512", ""),
    (cpuinfo("0x41", *["0xd4f"] * 8), "", ""),
    (cpuinfo("0x41", *["0xd4d"] * 4, *["0xd4c"] * 4), "", "0x41 0xd4d: CPUs 0-3; 0x41 0xd4c: CPUs 4-7"),
])  # fmt: skip
def test_kinds_of_arm_cores_are_inferred_from_parts(files, kinds, remark):
    arm = {"arch": "Architecture: aarch64"}
    machines = [read_recorded(DictRoot(shape_files(Shape(cores=8)) | arm | files))]
    machines += [read_cpuinfo(files["proc/cpuinfo"], "text")] if "proc/cpuinfo" in files else []
    for machine in machines:
        assert shown(machine.kinds).replace(":part", "") == kinds
        found = [text for text in machine.remarks if "implementer and part" in text]
        assert [remark in text for text in found] == [True] * bool(remark)


def test_a_plan_says_that_no_core_is_excluded_also_where_kinds_are_inferred():
    machine = read_cpuinfo(cpuinfo("0x41", "0xd05", "0xd0b")["proc/cpuinfo"], "text")
    texts = [note.text for note in make_plan(machine, Request(core_kind="cache")).notes]
    for part in ("--core-kind cache excludes no core", "inferred from part numbers"):
        assert any(part in text for text in texts)


@pytest.mark.parametrize(("model", "flags", "remark"), rows("""
    13th Gen Intel(R) Core(TM) i7-13700K        | fpu hypervisor | performance and efficiency cores
    12th Gen Intel(R) Core(TM) i5-12500H        | fpu hypervisor | performance and efficiency cores
    11th Gen Intel(R) Core(TM) i7-1165G7        | fpu hypervisor |
    Intel(R) Core(TM) Ultra 7 155H              | fpu hypervisor | performance and efficiency cores
    AMD Ryzen 9 7950X3D 16-Core Processor       | fpu hypervisor | two L3 caches of different size
    AMD Ryzen 7 7800X3D 8-Core Processor        | fpu hypervisor |
    13th Gen Intel(R) Core(TM) i7-13700K        | fpu            |
"""))  # fmt: skip
def test_equal_cores_that_a_hypervisor_shows_of_a_processor_with_others_are_told(model, flags, remark):
    text = f"processor\t: 0\nmodel name\t: {model}\nflags\t\t: {flags}\n"
    machine = read_recorded(DictRoot(shape_files(Shape(cores=4)) | {"proc/cpuinfo": text}))
    notes = [note.text for note in make_plan(machine, Request()).notes if "hypervisor shows" in note.text]
    assert [remark in note for note in notes] == [True] * bool(remark)


@pytest.mark.parametrize(("request_", "start"), [
    (Request(ranks=1), "several kinds of cores in rank 0"),
    (Request(ranks=2, mask=parse_mask("0-3|4-7")), "several kinds of cores, ranks differ"),
    (Request(ranks=1, core_kind="performance"), None),
    (Request(ranks=2, mask=parse_mask("4|5")), None),
])  # fmt: skip
def test_a_plan_that_mixes_kinds_says_so(request_, start):
    texts = [note.text for note in make_plan(hybrid(), request_).notes if note.code == "mixed-kinds"]
    assert [text.startswith(start or "?") for text in texts] == [True] * (start is not None)
    assert all("(--core-kind performance " in text for text in texts)


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
