"""Pictures of plans: every core once, with its rank as a symbol and as a colour, within the screen."""

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import PlanError
from ompbind.machine.model import CoreKind, Level
from ompbind.masks.mask import parse_mask
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.report.picture import KEYS, LINES, render_machine_svg, render_picture, render_svg
from ompbind.report.text import Screen
from tests.machines import Shape, make_machine
from tests.planning.test_promises import shapes

SVG = "{http://www.w3.org/2000/svg}"
PLAIN = Screen()


def plan(machine, mask=None, **options):
    return make_plan(machine, Request(mask=parse_mask(mask) if mask else None, **options))


def parts(picture):
    """The heading, the cores, the legend and the notes of a picture, each without colours."""
    return re.sub("\033[^m]*m", "", picture).split("\n\n")


DUAL = make_machine(Shape(packages=2, cores=4, smt=2))
KINDS = tuple(
    CoreKind(name=name, cpus=CpuSet(range(first, first + 4)), strength=strength, source="type")
    for name, first, strength in (("performance", 0, 1024), ("efficiency", 4, 600))
)
HYBRID = make_machine(Shape(cores=8), kinds=KINDS, isolated=CpuSet([7]), allowed=CpuSet([*range(6), 7]))


def test_a_picture_has_a_heading_rows_a_legend_and_notes():
    heading, rows, keys, notes = parts(render_picture(plan(DUAL, ranks=2, reserve=1), PLAIN))
    assert heading == "2 ranks, balanced, on test:\ntest, 16 CPUs, 8 cores, 2 packages, 2 NUMA nodes"
    assert rows.split("\n")[0] == "package 0, NUMA node 0 (1.0 GiB), L3 0  0 0 0 R"
    assert keys.split("\n")[::2] == ["0  rank 0: CPUs 0-2, 3 threads", "R  reserved"]
    assert notes == "note: 6 idle hardware threads on cores of ranks"
    _, rows, _ = parts(render_picture(plan(HYBRID, ranks=2, mask="0-1|3-4"), PLAIN))
    assert rows.split("\n")[1:] == ["  performance core  0 0 . 1", "  efficiency core   1 . - *"]


def symbol_of(made, cpus):
    """The symbol of some CPUs of one core, made in another way than the program does."""
    ranks = [rank.rank for rank in made.placements if not rank.cpuset.isdisjoint(cpus)]
    if ranks:
        cuts = [0, *(i for i in range(1, len(ranks)) if ranks[i] != ranks[i - 1] + 1), len(ranks)]
        runs = [ranks[start:stop] for start, stop in pairwise(cuts)]
        text = "/".join(f"{r[0]}-{r[-1]}" if len(r) > 2 else "/".join(map(str, r)) for r in runs)
        return text if len(text) <= 11 else f"{ranks[0]}+"
    if not cpus.isdisjoint(made.reserved):
        return "R"
    free = made.machine.allowed & cpus
    return "-" if not free else "*" if free <= made.machine.excluded_by_default else "."


@st.composite
def plans(draw):
    """Plans of the planner, on machines with CPUs that are not allowed, or excluded by default."""
    machine = make_machine(draw(shapes))
    some = st.just(EMPTY) | st.frozensets(st.integers(0, len(machine.online) - 1)).map(CpuSet)
    machine = machine.replace(allowed=machine.online - draw(some), isolated=draw(some))
    assume(machine.allowed)
    strategies = ["balanced", "compact", "spread", "nodes", "cores", "all"]
    try:
        return plan(
            machine, ranks=draw(st.integers(1, 20)), strategy=draw(st.sampled_from(strategies)),
            smt=draw(st.sampled_from(["auto", "all", 2])), threads=draw(st.none() | st.integers(1, 4)),
            reserve=draw(st.integers(0, 1)), sharing=draw(st.sampled_from([Sharing.WARN, Sharing.SHARE])),
        )  # fmt: skip
    except PlanError:
        assume(False)


TITLE = re.compile(r"(?:part of )?(?:package|NUMA node|L3) \d+(?: = \w+:\d+)?(?: \([^)]*\))?,?")


def check_cores(made, rows):
    """Check that each core has its symbol in the rows of a picture; a counted cell stands for several."""
    cells = Counter()
    for symbol in TITLE.sub(" ", " ".join(rows.split())).split():
        text, _, times = symbol.partition("×")
        cells[text] += int(times or 1)
    assert cells == Counter(symbol_of(made, core.cpus) for core in made.machine.at(Level.CORE))


@given(plans(), st.integers(40, 200))
def test_every_core_is_shown_once_with_its_rank(made, width):
    picture = render_picture(made, Screen(width=width))
    check_cores(made, parts(picture)[1])
    assert max(map(len, picture.split("\n"))) <= width
    styled = render_picture(made, Screen(width=width, styled=True))
    assert re.sub("\033[^m]*m", "", styled) == picture
    plain = render_picture(made, Screen(width=width, is_unicode=False))
    assert plain.isascii()
    assert max(map(len, plain.split("\n"))) <= width


def test_large_pictures_count_cores_and_stay_short():
    made = plan(make_machine(Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2)), ranks=64)
    _, rows, keys, *_ = parts(render_picture(made, PLAIN))
    assert len(rows.split("\n")) <= LINES
    check_cores(made, rows)
    assert "×2" in keys


OTHER = LiveRun(run_id="other", pid=1, uid=1, started=1, ranks=(), claimed=CpuSet([0]))
TWO_CPUS = "|".join("0" if rank % 2 else "1" for rank in range(14))


@pytest.mark.parametrize(("made", "keys"), [
    (plan(HYBRID, ranks=2, mask="0-1|3-4"), ". idle|* excluded by default (isolated)|- not allowed"),
    (plan(DUAL, ranks=2, strategy="all", smt="all"), "0/1 shared by these ranks"),
    (plan(DUAL, ranks=2, cores=2, service_cores=1), "0s for service threads of this rank|. idle"),
    (make_plan(DUAL, Request(sharing=Sharing.AVOID), [OTHER]), "o used by other runs"),
    (plan(DUAL, ranks=14, mask=TWO_CPUS, sharing=Sharing.SHARE),
     "1+ shared by this rank and several others|. idle"),
    (plan(make_machine(Shape(cores=KEYS + 1)), ranks=KEYS + 1),
     "0 to 16 ranks; --format table lists their CPUs"),
])  # fmt: skip
def test_legends_have_all_symbols_and_no_others(made, keys):
    shown = parts(render_picture(made, Screen(width=200)))[2].split("\n")
    own = len(made.placements) if len(made.placements) <= KEYS else 0
    assert [" ".join(line.split()) for line in shown[own:]] == keys.split("|")


def test_pictures_of_machines_have_the_numbers_of_all_cpus():
    root = ElementTree.fromstring(render_machine_svg(HYBRID))
    text = "\n".join(found.text or "" for found in root.iter(f"{SVG}text")).replace("\xa0", " ")
    assert "efficiency core   4 5 " in text
    assert "allowed: 7 CPUs (0-5,7)" in text


@pytest.mark.parametrize("text", ["<b>&amp;\"'", "]]>", "\udc80\ufffe\0", "\N{SNOWMAN}", "a" * 300])
def test_an_svg_file_has_the_whole_text_and_colours_and_needs_no_other_files(text):
    file = render_svg(f"{text}\n\033[48;5;110m0 0\033[0m", text)
    assert file.isascii()
    root = ElementTree.fromstring(file)
    found = "".join(line.text.replace("\xa0", " ") for line in root.iter(f"{SVG}text"))
    expected = re.sub("[\udc80\ufffe\0]", "\ufffd", text)
    assert found.replace("\n", "") == f"{expected}0 0"
    assert root.findtext(f"{SVG}title")
    assert [rect.get("fill") for rect in root.iter(f"{SVG}rect")][-1] == "#87afd7"
    assert re.findall('https?://[^"]+', file) == ["http://www.w3.org/2000/svg"]
    assert not re.search("<script|<image|href|@import|@font-face", file)
