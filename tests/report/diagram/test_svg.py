"""Pictures: every CPU once, every box inside the box around it, and every distinction also in words."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind, Level, Machine, Node, make_domains
from ompbind.report.diagram.svg import render_svg
from tests.machines import Shape, make_machine

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
    check_texts(group, outer, inner)
    return inner if rect is None else [outer]


def are_disjoint(box, other):
    return box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]


def check_texts(group, outer, inner):
    """Check that titles are within their box (by an estimate) and above the boxes inside."""
    for text in group.findall(f"{SVG}text"):
        x, y = int(text.get("x")), int(text.get("y"))
        centred = group.get("class").split()[0] in ("cpu", "key")
        reach = 6 * len(text.text or "") // (2 if centred else 1)
        assert outer[0] <= x - (reach if centred else 0)
        assert x + reach <= outer[2]
        assert outer[1] < y < min((box[1] for box in inner), default=outer[3])


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


SHAPES = [
    Shape(cores=1),
    Shape(cores=7, smt=8, numbering="adjacent"),
    Shape(packages=2, cores=8, smt=2, numbering="round-robin"),
    Shape(packages=2, nodes=2, l3s=2, cores=3, smt=2),
    Shape(packages=4, nodes=2, cores=6),
    Shape(packages=12, l3s=2, cores=4, smt=4),
]


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
@pytest.mark.parametrize("allowed", [None, CpuSet([0])])
def test_shapes(shape, allowed):
    check(make_machine(shape, allowed=allowed))


def any_domains(count):
    """Domains that may leave CPUs out, and a further domain that overlaps with them."""
    owners = st.lists(st.integers(-1, 3), min_size=count, max_size=count)
    parts = owners.map(lambda found: [(i, CpuSet(owned(found, i))) for i in range(4)])
    return st.tuples(parts, subsets(count)).map(lambda both: [*both[0], (4, both[1])])


def owned(owners, part):
    return (cpu for cpu, owner in enumerate(owners) if owner == part)


def subsets(count):
    return st.frozensets(st.integers(0, count - 1)).map(CpuSet)


@st.composite
def machines(draw):
    count = draw(st.integers(1, 24))
    online = CpuSet(range(count))
    levels = draw(st.lists(st.sampled_from(list(Level)), unique=True))
    domains = make_domains(online, {level: draw(any_domains(count)) for level in levels})
    nodes = [
        Node(number=domain.os_id, cpus=domain.cpus, memory_bytes=draw(st.none() | st.integers(0, 1 << 50)))
        for domain in domains
        if domain.level is Level.NODE
    ]
    near = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    bare = [Node(number=10 + i, cpus=CpuSet(), nearest=draw(near)) for i in range(draw(st.integers(0, 3)))]
    return Machine(
        source=draw(st.text(max_size=100)),
        arch="any",
        online=online,
        allowed=draw(subsets(count)),
        domains=domains,
        nodes=(*nodes, *bare),
        isolated=draw(subsets(count)),
    )


@given(machines())
def test_any_machine(machine):
    root = check(machine)
    bare = [node.number for node in machine.nodes if not node.cpus]
    shown = sorted(int(words(group).split()[2]) for group in groups(root, "memory"))
    assert shown == bare
    assert marked(root, "apart") == machine.isolated


def test_overlapping_levels_are_cut_where_they_cross():
    online = CpuSet(range(4))
    cut = make_domains(
        online,
        {
            Level.NODE: [(0, CpuSet([0, 1])), (1, CpuSet([2, 3]))],
            Level.L3: [(0, CpuSet([0])), (1, CpuSet([1, 2, 3]))],
        },
    )
    root = check(Machine(source="cut", arch="any", online=online, allowed=online, domains=cut))
    assert [words(group) for group in groups(root, "l3")] == ["L3 0 · part of NUMA node 0", "L3 1"]
    assert [words(group) for group in groups(root, "node")] == ["part of NUMA node 0", "NUMA node 1"]


def test_domains_of_the_same_cpus_are_one_box():
    root = parse(make_machine(Shape(packages=2, cores=4)))
    assert [words(group) for group in groups(root, "package")] == [
        "package 0 · NUMA node 0 (1.0 GiB) · L3 0",
        "package 1 · NUMA node 1 (1.0 GiB) · L3 1",
    ]
    assert not groups(root, "node")
    assert not groups(root, "l3")


def test_levels_with_one_core_per_domain_get_no_box_except_nodes_with_their_memory():
    root = parse(make_machine(Shape(packages=2, cores=1)))
    assert [words(group) for group in groups(root, "node")] == [
        "NUMA node 0 (1.0 GiB)",
        "NUMA node 1 (1.0 GiB)",
    ]
    assert not groups(root, "package")
    assert not groups(root, "l3")


def test_the_tooltip_of_a_cpu_names_its_domains():
    machine = make_machine(Shape(packages=2, cores=2, smt=2), allowed=CpuSet(range(7)))
    root = parse(machine)
    assert tip(cpus(root)[6]) == "CPU 6, core 2, L3 1, NUMA node 1, package 1"
    assert tip(cpus(root)[7]) == "CPU 7, core 3, L3 1, NUMA node 1, package 1, not allowed"


HYBRID = (
    CoreKind(name="performance", cpus=CpuSet(range(4)), strength=1024, source="type"),
    CoreKind(name="efficiency", cpus=CpuSet(range(4, 8)), strength=600, source="type"),
)


def test_the_legend_shows_only_what_occurs():
    plain = make_machine(Shape(cores=8))
    core = "core, with its CPU numbers"
    assert legend(parse(plain)) == [core]
    assert legend(parse(plain.replace(allowed=CpuSet([1])))) == [core, "CPU not allowed"]
    assert legend(parse(plain.replace(nohz_full=CpuSet([1])))) == [
        core,
        "CPU excluded by default (nohz_full)",
    ]
    assert legend(parse(plain.replace(kinds=HYBRID))) == ["performance core", "efficiency core"]
    assert legend(parse(plain.replace(kinds=HYBRID[:1]))) == [core, "performance core"]
    offline = HYBRID[1].replace(cpus=CpuSet([8, 9]))
    assert legend(parse(plain.replace(kinds=(HYBRID[0], offline)))) == [core, "performance core"]


def test_core_kinds_have_fills_of_their_own():
    machine = make_machine(Shape(cores=8)).replace(kinds=HYBRID)
    root = parse(machine)
    classes = [group.get("class") for group in groups(root, "core")]
    assert classes == ["core performance-0"] * 4 + ["core efficiency-0"] * 4
    assert tip(cpus(root)[7]).endswith(", efficiency core")
    style = root.findtext(f"{SVG}style")
    fills = re.findall(r"\.(?:performance|efficiency)-\d>rect\{fill:([^}]+)\}", style)
    assert len(fills) == len(set(fills)) > 1


def test_kinds_of_the_same_name_differ_by_strength():
    big, middle = (
        CoreKind(name="performance", cpus=CpuSet([cpu]), strength=strength, source="capacity")
        for cpu, strength in ((1, 1024), (0, 800))
    )
    root = parse(make_machine(Shape(cores=2)).replace(kinds=(big, middle)))
    assert legend(root) == ["performance core (strength 1024)", "performance core (strength 800)"]
    assert tip(cpus(root)[0]).endswith(", performance core (strength 800)")
    assert len({group.get("class") for group in groups(root, "core")}) == 2


def test_cpus_excluded_by_default_are_marked_with_the_reason():
    machine = make_machine(Shape(cores=4)).replace(isolated=CpuSet([1, 2, 99]), nohz_full=CpuSet([2, 3]))
    root = parse(machine)
    assert str(marked(root, "apart")) == "1-3"
    assert tip(cpus(root)[2]).endswith(", isolated, nohz_full")
    assert legend(root)[-1] == "CPU excluded by default (isolated, nohz_full)"


def test_memory_without_cpus_is_beside_its_nearest_node():
    machine = make_machine(Shape(packages=2, nodes=2))
    bare = (
        Node(number=4, cpus=CpuSet(), memory_bytes=2 << 30, nearest=(1,)),
        Node(number=5, cpus=CpuSet(), memory_bytes=4 << 30, nearest=(2, 3)),
        Node(number=6, cpus=CpuSet(), memory_bytes=8 << 30, nearest=(0, 2)),
        Node(number=7, cpus=CpuSet()),
    )
    root = check(machine.replace(nodes=(*machine.nodes, *bare)))
    memory = groups(root, "memory")
    assert [words(group) for group in memory] == [
        "NUMA node 4 (2.0 GiB) · no CPUs · nearest to node 1",
        "NUMA node 5 (4.0 GiB) · no CPUs · nearest to nodes 2-3",
        "NUMA node 6 (8.0 GiB) · no CPUs · nearest to nodes 0,2",
        "NUMA node 7 · no CPUs",
    ]
    around = {child: parent for parent in root.iter() for child in parent}
    assert words(around[memory[0]][0]) == "NUMA node 1 (1.0 GiB) · L3 1"
    assert words(around[memory[1]][0]) == "package 1"


def test_memory_equally_near_to_all_nodes_is_in_a_row_at_the_bottom():
    machine = make_machine(Shape(packages=2))
    bare = tuple(Node(number=i, cpus=CpuSet(), nearest=(0, 1)) for i in (2, 3))
    root = check(machine.replace(nodes=(*machine.nodes, *bare)))
    package, *memory = (
        corners(group.find(f"{SVG}rect")) for group in (groups(root, "package")[0], *groups(root, "memory"))
    )
    assert memory[0][1] == memory[1][1] > package[3]


def test_the_heading_shows_limits_and_remarks():
    machine = make_machine(
        Shape(cores=2), allowed=CpuSet([1]), offline=CpuSet([2, 5]), quota=1.5, remarks=("odd",)
    )
    assert [words(group) for group in groups(parse(machine), "line")] == [
        "test",
        "test, 2 CPUs, 2 cores, 1 package, 1 NUMA node",
        "allowed: 1 CPU (1)",
        "offline: CPUs 2,5",
        "CPU time: 1.5 CPUs (cgroup quota)",
        "note: odd",
    ]


@pytest.mark.parametrize("source", ["<b>&amp;\"'", "]]>", "\x1b[31m\udc80\ufffe", "\N{SNOWMAN}", "a" * 300])
def test_foreign_text_is_escaped(source):
    text = render_svg(make_machine(Shape(cores=1)).replace(source=source, remarks=(source,)))
    assert text.isascii()
    root = ElementTree.fromstring(text)
    expected = source.replace("\x1b", "\ufffd").replace("\udc80", "\ufffd").replace("\ufffe", "\ufffd")
    assert words(groups(root, "line")[0]) == expected
    assert root.findtext(f"{SVG}title").startswith(expected)


def test_a_picture_needs_no_other_files():
    text = render_svg(make_machine(Shape(packages=2)))
    assert re.findall('https?://[^"]+', text) == ["http://www.w3.org/2000/svg"]
    assert not re.search("<script|<image|href|url|@import|@font-face", text)


def test_2048_cpus_fit():
    machine = make_machine(Shape(packages=8, nodes=2, l3s=4, cores=16, smt=2))
    root = check(machine)
    assert len(render_svg(machine)) < 1_000_000
    assert int(root.get("width")) <= 1640


def test_packages_stand_side_by_side_up_to_the_largest_width():
    def rows(count):
        root = parse(make_machine(Shape(packages=count, cores=8, smt=2)))
        tops = [int(group.find(f"{SVG}rect").get("y")) for group in groups(root, "package")]
        return [tops.count(top) for top in sorted(set(tops))]

    assert rows(2) == [2]
    assert rows(6) == [6]
    assert rows(16) == [8, 8]


def test_cores_are_arranged_in_a_near_square():
    root = parse(make_machine(Shape(cores=64)))
    x, y, right, bottom = corners(groups(root, "package")[0].find(f"{SVG}rect"))
    assert 0.8 < (right - x) / (bottom - y) < 2.5


def test_cores_fill_the_width_below_a_title():
    root = parse(make_machine(Shape(packages=2, cores=4)))
    tops = [group.find(f"{SVG}rect").get("y") for group in groups(root, "core")]
    assert len(set(tops)) == 1


def test_a_machine_with_nothing_but_cores():
    online = CpuSet([0, 3, 200])
    machine = Machine(
        source="bare", arch="any", online=online, allowed=online, domains=make_domains(online, {})
    )
    root = check(machine)
    assert len(groups(root, "core")) == 3
