"""The machine and its devices as trees, tables and pictures: in terminals of any width, each device once."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.topo import LINES, render_listing, render_tree
from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import MaskError
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.model import CoreKind
from ompbind.machine.read import read_machine
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.picture import render_picture
from ompbind.report.text import WIDTH, Screen, render_cpus
from tests.machines import Shape, make_machine
from tests.recordings import ABSENT, recorded


def test_evenly_spaced_cpus_are_one_stride():
    for cpus, text in {
        "": "", "3": "3", "0-7": "0-7", "0,2,4": "0,2,4", "1,5,9,13": "1-13:4", "0,2,5": "0,2,5",
        "0-1,8-9,16-17,24-25": "0-25:2/8", "0-3,8,12,16,20,24": "0-3,8-24:4", "0-1,4,8": "0-1,4,8",
        "0,8,12,16,20,21": "0,8,12,16,20-21",
    }.items():  # fmt: skip
        assert render_cpus(CpuSet.from_list(cpus)) == text
        assert CpuSet.from_list(text) == CpuSet.from_list(cpus)


def test_limits_kinds_and_states_are_shown():
    machine = make_machine(
        Shape(packages=2, cores=4), allowed=CpuSet(range(6)), isolated=CpuSet([5]), nohz_full=CpuSet([4, 5]),
        offline=CpuSet([9]), quota=2.5, memory_allowed=CpuSet([1, 5]),
        kinds=(CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
               CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type")),
    ).replace(source="a\033[31mb", arch="x\ud800", remarks=("something \007odd",))  # fmt: skip
    assert render_tree(machine).splitlines() == [
        "a?[31mb: x?, 8 CPUs, 8 cores, 2 packages, 2 NUMA nodes", "allowed: 6 CPUs (0-5)",
        "memory not allowed: NUMA node 0", "offline: CPU 9",
        "isolated: CPU 5 (used only if named in a mask)",
        "nohz_full: CPUs 4-5 (used only if named in a mask)", "performance cores: CPUs 0-3 (strength 1024)",
        "efficiency cores: CPUs 4-7 (strength 600)", "CPU time: 2.5 CPUs (cgroup quota)",
        "  package 0, NUMA node 0 (1.0 GiB), L3 0", "    4 × performance core (1 CPU): 0-3",
        "  package 1, NUMA node 1 (1.0 GiB), L3 1", "    2 × efficiency core (1 CPU): 4-5",
        "    2 × efficiency core (1 CPU): 6-7, not allowed", "note: something ?odd",
    ]  # fmt: skip
    states = [" ".join(line.split()[5:]) for line in render_listing(machine).splitlines()]
    assert states[4:] == [
        "performance allowed", "efficiency nohz_full", "efficiency isolated, nohz_full",
        "efficiency not allowed", "efficiency not allowed", "- offline",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [40, WIDTH])
def test_trees_of_large_machines_fit_a_screen(width):
    for shape in (Shape(packages=8, nodes=2, l3s=4, cores=16, smt=2), Shape(cores=512)):
        lines = render_tree(make_machine(shape), Screen(width=width)).splitlines()
        assert len(lines) <= LINES + 4 or width < WIDTH
        assert max(map(len, lines)) <= width


def test_numbers_in_masks_are_shown_where_they_differ():
    """Only the second package is allowed, so its numbers in masks begin with 0."""
    machine = make_machine(Shape(packages=2, nodes=2, cores=2), allowed=CpuSet(range(4, 8)))
    tree = render_tree(machine).splitlines()
    assert "  package 1 = package:0" in tree
    assert "    NUMA node 3 = node:1 (1.0 GiB), L3 3 = l3:1: 2 × core (1 CPU): 6-7" in tree
    plan = make_plan(machine, Request(mask=parse_mask("node:1")))
    assert str(plan.placements[0].cpuset) == "6-7"
    with pytest.raises(MaskError) as caught:
        make_plan(machine, Request(mask=parse_mask("node:2")))
    assert "node:#2-3" in caught.value.hint


WIDE = Screen(width=200)


def gpu(number, cpus, **fields):
    address = f"0000:{number:02x}:00.0"
    return Device(kind=DeviceKind.GPU, index=0, address=address, vendor="10de", cpus=cpus, **fields)


def draw(machine, screen=WIDE):
    return render_picture(make_plan(machine, Request()), screen)


def found_names(text):
    """Count the names of devices in a text: "gpu:0-2" are three."""
    joined = re.sub(r",\s*\n\s+(?=\d)", ",", text)
    found = re.findall(r"\b(gpu|nic|accelerator|display):(\d+(?:[-,]\d+)*)", joined)
    return Counter(f"{kind}:{index}" for kind, numbers in found for index in CpuSet.from_list(numbers))


def check(machine):
    """Check that each device is once in the tree, in the picture and in the listing."""
    once = Counter(device.name for device in machine.devices)
    assert found_names(render_tree(machine, WIDE)) == found_names(draw(machine)) == once
    listing = "\n".join(render_listing(machine, WIDE).split("\n\n")[:2])  # CPUs, and devices with their CPUs
    assert found_names("\n".join(re.findall(r"^\w+:\d+", listing, re.MULTILINE))) == once


def test_tree_of_devices():
    near_0, near_1 = CpuSet(range(4)), CpuSet(range(4, 8))
    devices = number_devices([
        gpu(1, near_1, names=("card1", "renderD128")),
        gpu(2, near_1, names=("card2",), excluded="used by a virtual machine"),
        gpu(3, near_0, partition=0, names=("rsmi0",)), gpu(3, near_0, partition=1, names=("rsmi1",)),
        gpu(4, CpuSet([1])), gpu(5, EMPTY), gpu(6, near_0 | near_1),
        gpu(7, near_0, names=("card0",)).replace(kind=DeviceKind.DISPLAY),
    ])  # fmt: skip
    lines = render_tree(make_machine(Shape(packages=2, cores=4), devices=devices), WIDE).splitlines()[1:]
    assert [line.strip() for line in lines[1:4] + lines[5:]] == [
        "gpu:2-3 at 0000:03:00.0 (2 partitions, rsmi0 to rsmi1)", "gpu:4 at 0000:04:00.0, near CPUs 1",
        "display:0 at 0000:07:00.0 (card0), not for ranks", "gpu:0 at 0000:01:00.0 (card1, renderD128)",
        "gpu:1 at 0000:02:00.0 (card2), excluded: used by a virtual machine",
        "gpu:5 at 0000:05:00.0, near: not known", "gpu:6 at 0000:06:00.0",
    ]  # fmt: skip
    assert [line[:14] for line in (lines[0], lines[4])] == ["  package 0, N", "  package 1, N"]


kinds = st.sampled_from([DeviceKind.GPU, DeviceKind.NIC, DeviceKind.DISPLAY])
shapes = st.builds(
    Shape, packages=st.sampled_from([1, 2, 20]), nodes=st.integers(1, 2), l3s=st.integers(1, 2),
    cores=st.integers(1, 4), smt=st.integers(1, 2),
)  # fmt: skip


@given(data=st.data(), shape=shapes)
def test_each_device_is_shown_once(data, shape):
    plain = make_machine(shape)
    places = st.sampled_from([EMPTY, plain.online, *(domain.cpus for domain in plain.domains)])
    places |= st.sets(st.sampled_from(list(plain.online)), min_size=1).map(CpuSet)
    reasons = st.sampled_from(["", "reason"])
    made = [
        gpu(i, data.draw(places), excluded=data.draw(reasons)) for i in range(data.draw(st.integers(0, 6)))
    ]
    devices = [device.replace(kind=data.draw(kinds)) for device in made]
    check(plain.replace(devices=tuple(number_devices(devices))))


RECORDINGS = [*recorded("devices/*.tar.gz"), *recorded("xml/*.xml")]
SAMPLE = {path for some in (RECORDINGS[:12], RECORDINGS[12:]) for path in some[:: max(1, len(some) // 3)]}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path in SAMPLE else pytest.mark.long) for path in RECORDINGS] or [ABSENT],
    ids=lambda path: path.stem,
)
def test_each_device_of_a_recording_is_shown_once_and_lines_fit(path):
    machine = read_machine(str(path), devices=True).replace(source=path.name)
    check(machine)
    for width in (60, 160):
        screen = Screen(width=width)
        texts = [render_tree(machine, screen), render_listing(machine, screen), draw(machine, screen)]
        assert max(len(line) for text in texts for line in text.splitlines()) <= width
