"""Pictures of plans, tables and paragraphs: they have everything once, and fit every terminal."""

import re
from collections import Counter
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ompbind.cli.ps import render_ps
from ompbind.commands.rank_command import RankCommand
from ompbind.cpuset import EMPTY, CpuSet
from ompbind.errors import MaskError, PlanError, PositionError
from ompbind.machine.model import CoreKind, Level
from ompbind.masks.mask import parse_mask
from ompbind.planning.other_runs import LiveRun
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request, Sharing
from ompbind.registry.registry import RunInfo
from ompbind.report import text as text_
from ompbind.report.picture import render_machine_svg, render_picture, render_svg
from ompbind.report.plan import render_commands, render_plan
from ompbind.report.text import Screen, render_error
from tests.machines import Shape, make_machine
from tests.planning.test_promises import shapes

SVG = "{http://www.w3.org/2000/svg}"


def plan(machine, mask=None, **options):
    return make_plan(machine, Request(mask=parse_mask(mask) if mask else None, **options))


def parts(picture):
    """The heading, the cores, the legend and the notes of a picture, each without colours."""
    return re.sub("\033[^m]*m", "", picture).split("\n\n")


KINDS = tuple(
    CoreKind(name=name, cpus=CpuSet(range(first, first + 4)), strength=strength, source="type")
    for name, first, strength in (("performance", 0, 1024), ("efficiency", 4, 600))
)
HYBRID = make_machine(Shape(cores=8), kinds=KINDS, isolated=CpuSet([7]), allowed=CpuSet([*range(6), 7]))


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
    machine = "".join(ElementTree.fromstring(render_machine_svg(HYBRID)).itertext()).replace("\xa0", " ")
    assert re.search(r"allowed: 7 CPUs \(0-5,7\).*efficiency core   4 5 ", machine, re.S)


WIDTHS = [60, 80, 160, 200]


def longest(text):
    return max(map(len, text.splitlines()))


@given(plans(), st.sampled_from(WIDTHS))
def test_any_plan_fits_the_terminal(plan, width):
    assert longest(render_plan(plan, Screen(width=width))) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_live_runs_and_commands_fit_the_terminal(width):
    run = LiveRun(
        run_id="20260102-030405-1234567", pid=4194304, uid=0, started=0, claimed=CpuSet(range(0, 900, 9)),
        ranks=tuple((rank, CpuSet([rank * 9, rank * 17])) for rank in range(50)),
    )  # fmt: skip
    info = RunInfo(run=run, user="developer", command=("python3", "serve.py", *["--option=value"] * 40))
    assert longest(render_ps([info, info], 1e6, Screen(width=width))) <= width
    usual = info.replace(run=run.replace(ranks=((0, CpuSet(range(96))),)))
    words = render_ps([usual], 1e6, Screen(width=width)).split()
    assert {run.run_id, "developer", "4194304", "11", "0-95", *usual.command} <= {*words}, "words are whole"
    ranks = [
        RankCommand(rank=rank, argv=["word" * 5, *[f"word{rank}"] * 30], env={}, cpus=None,
                    directory=f"/a/{rank}" * 9)
        for rank in (9, 10, 11)
    ]  # fmt: skip
    assert longest(render_commands(ranks, [], width)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_messages_and_errors_fit_the_terminal(width):
    lines = text_.render_paragraph("note", "many words " * 40, width).splitlines()
    assert width - 6 < longest("\n".join(lines[:-1])) <= width
    with pytest.raises(MaskError) as caught:
        parse_mask(",".join(map(str, range(150))) + ",x")
    *_, mask, marks = render_error(caught.value, width).splitlines()[:3]
    assert longest(render_error(caught.value, width)) <= width
    assert mask[marks.index("^")] == "x"
    error = PositionError("wrong", text="漢" * 200 + "x" + "字" * 200, span=(200, 201))
    _, text, marks = render_error(error, width).splitlines()
    columns = "".join(char * 2 if char in "漢字" else char for char in text)
    assert longest(columns) <= width
    assert columns[marks.index("^")] == "x"
