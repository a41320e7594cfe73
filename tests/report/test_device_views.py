"""Devices in trees, tables and pictures: each once, below the CPUs that it is near, and none hides CPUs."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.topo import render_listing, render_tree
from ompbind.cpuset import EMPTY, CpuSet
from ompbind.machine.devices import Device, DeviceKind, number_devices
from ompbind.machine.read import read_machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.report.picture import render_picture
from ompbind.report.text import Screen
from tests.machines import Shape, make_machine
from tests.recordings import ABSENT, recorded

WIDE = Screen(width=200)
DUAL = Shape(packages=2, cores=4)
NEAR_0, NEAR_1 = CpuSet(range(4)), CpuSet(range(4, 8))


def gpu(number, cpus, **fields):
    address = f"0000:{number:02x}:00.0"
    return Device(kind=DeviceKind.GPU, index=0, address=address, vendor="10de", cpus=cpus, **fields)


def with_devices(*devices, shape=DUAL):
    return make_machine(shape, devices=number_devices(devices))


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
    machine = with_devices(
        gpu(1, NEAR_1, names=("card1", "renderD128")),
        gpu(2, NEAR_1, names=("card2",), excluded="used by a virtual machine"),
        gpu(3, NEAR_0, partition=0, names=("rsmi0",)),
        gpu(3, NEAR_0, partition=1, names=("rsmi1",)),
        gpu(4, CpuSet([1])), gpu(5, EMPTY), gpu(6, NEAR_0 | NEAR_1),
        gpu(7, NEAR_0, names=("card0",)).replace(kind=DeviceKind.DISPLAY),
    )  # fmt: skip
    lines = render_tree(machine, WIDE).splitlines()[1:]
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
    check(with_devices(*(device.replace(kind=data.draw(kinds)) for device in made), shape=shape))


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
