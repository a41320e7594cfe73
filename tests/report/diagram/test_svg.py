"""Pictures: every CPU once, every box inside the box around it, and every distinction also in words."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind
from ompbind.report.diagram.svg import render_svg
from tests.machines import Shape, make_machine
from tests.planning.test_promises import shapes

SVG = "{http://www.w3.org/2000/svg}"


def parse(machine):
    return ElementTree.fromstring(render_svg(machine))


def groups(root, style):
    """The groups of a style, marks aside."""
    return [group for group in root.iter(f"{SVG}g") if group.get("class").split()[0] == style]


def words(group):
    return " · ".join(text.text or "" for text in group.findall(f"{SVG}text"))


def tip(group):
    return group.findtext(f"{SVG}title")


def cpus(root):
    """The CPU groups of a picture by the number that is written in them; fails if a number occurs twice."""
    found = [(int(words(group)), group) for group in groups(root, "cpu")]
    assert len(dict(found)) == len(found)
    return dict(found)


def marked(root, mark):
    return CpuSet(cpu for cpu, group in cpus(root).items() if mark in group.get("class").split())


def legend(root):
    return [words(group) for group in groups(root, "key")]


def corners(rect):
    x, y, width, height = (int(rect.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def check_geometry(group, around):
    """Check the boxes of a group, and return the outermost of them."""
    rect = group.find(f"{SVG}rect")
    outer = around if rect is None else corners(rect)
    assert around[0] <= outer[0] < outer[2] <= around[2]
    assert around[1] <= outer[1] < outer[3] <= around[3]
    inner = [box for child in group.findall(f"{SVG}g") for box in check_geometry(child, outer)]
    for i, box in enumerate(inner):
        assert all(are_disjoint(box, other) for other in inner[:i])
    return inner if rect is None else [outer]


def are_disjoint(box, other):
    return box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]


def check(machine):
    """Check what holds for the picture of any machine; return its root."""
    root = parse(machine)
    size = (0, 0, int(root.get("width")), int(root.get("height")))
    assert [corners(groups(root, "machine")[0].find(f"{SVG}rect"))] == [size]
    check_geometry(groups(root, "machine")[0], size)
    assert CpuSet(cpus(root)) == machine.online
    assert marked(root, "not-allowed") == machine.online - machine.allowed
    assert render_svg(machine) == render_svg(machine)
    return root


def subsets(count):
    return st.frozensets(st.integers(0, count - 1)).map(CpuSet)


@given(shapes, st.data())
def test_any_machine(shape, data):
    machine = make_machine(shape)
    count = len(machine.online)
    machine = machine.replace(allowed=data.draw(subsets(count)), isolated=data.draw(subsets(count)))
    assert marked(check(machine), "apart") == machine.isolated


HYBRID = (
    CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type"),
)


def test_the_legend_shows_only_what_occurs():
    plain = make_machine(Shape(cores=8))
    core = "core, with its CPU numbers"
    assert legend(parse(plain)) == [core]
    assert legend(parse(plain.replace(allowed=CpuSet([1])))) == [core, "CPU not allowed"]
    excluded = plain.replace(nohz_full=CpuSet([1]), isolated=CpuSet([2]))
    assert legend(parse(excluded)) == [core, "CPU excluded by default (isolated, nohz_full)"]
    root = parse(plain.replace(kinds=HYBRID, allowed=CpuSet(range(7))))
    assert tip(cpus(root)[6]) == "CPU 6, core 6, L3 0, NUMA node 0, package 0, efficiency core"
    assert "not allowed" in tip(cpus(root)[7])
    assert legend(root) == ["performance core", "efficiency core", "CPU not allowed"]


@pytest.mark.parametrize("source", ["<b>&amp;\"'", "]]>", "\x1b[31m\udc80\ufffe", "\N{SNOWMAN}", "a" * 300])
def test_foreign_text_is_escaped_and_a_picture_needs_no_other_files(source):
    text = render_svg(make_machine(Shape(cores=1)).replace(source=source, remarks=(source,)))
    assert text.isascii()
    root = ElementTree.fromstring(text)
    expected = source.replace("\x1b", "\ufffd").replace("\udc80", "\ufffd").replace("\ufffe", "\ufffd")
    assert words(groups(root, "line")[0]) == expected
    assert root.findtext(f"{SVG}title").startswith(expected)
    assert re.findall('https?://[^"]+', text) == ["http://www.w3.org/2000/svg"]
    assert not re.search("<script|<image|href|url|@import|@font-face", text)
