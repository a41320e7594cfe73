"""The machine and its devices as trees, tables and pictures: in terminals of any width, each device once."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.topo import render_listing, render_tree
from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import MaskError
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.read import read_machine
from ompbind.masks.mask import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.picture import render_picture
from ompbind.report.text import Screen, render_cpus
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
    assert "#2-3" in caught.value.hint


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
