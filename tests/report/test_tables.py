"""Tables and paragraphs fit every terminal, wrap only where they must, and can be copied."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.cli.ps import render_ps
from ompbind.commands.rank_command import RankCommand
from ompbind.cpuset import CpuSet
from ompbind.errors import MaskError, PositionError
from ompbind.masks.mask import parse_mask
from ompbind.planning.other_runs import LiveRun
from ompbind.registry.registry import RunInfo
from ompbind.report import text as text_
from ompbind.report.plan import render_commands, render_plan
from ompbind.report.text import Column, Screen, render_error
from tests.report.test_picture import plans

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


@given(st.lists(st.text("ab, |", max_size=60), min_size=1, max_size=4), st.integers(50, 90))
def test_columns_fit_any_width_and_no_text_is_lost(cells, width):
    columns = [Column(title=f"c{i}", cells=[cell], grows=True) for i, cell in enumerate(cells)]
    text = text_.render_table(columns, width)
    assert longest(text) <= width
    assert sorted(re.sub(r"\s", "", text)) == sorted(re.sub(r"\s", "", "".join(cells) + text.split("\n")[0]))


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


@pytest.mark.parametrize(("text", "wrong", "marks"), [
    ("\tkey = 1", "key", " ^^^"), ("'漢字'.key = 1", "key", "       ^^^"), ("'漢字' = 1", "'漢字'", "^^^^^^"),
    ("e\u0301\x1b.key = 1", "key", "   ^^^"), ("key", "", "^"),
])  # fmt: skip
def test_errors_are_marked_below_wide_characters(text, wrong, marks):
    start = text.index(wrong)
    error = PositionError("wrong", text=text, span=(start, start + len(wrong)))
    assert render_error(error).splitlines()[2] == f"    {marks}"


@pytest.mark.parametrize(("text", "clipped"), [
    ("12345678", "12345678"), ("123456789", "12345..."), ("漢字漢字", "漢字漢字"), ("漢字漢字漢", "漢字..."),
])  # fmt: skip
def test_clipped_texts_have_so_many_columns_at_most(text, clipped):
    assert text_.clip(text, 8) == clipped


@pytest.mark.parametrize(("size", "text"), [
    (None, "unknown"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (99 << 20, "99.0 MiB"),
    (100 << 20, "100 MiB"), (5 << 50, "5120 TiB"),
])  # fmt: skip
def test_sizes_have_binary_units(size, text):
    assert text_.render_bytes(size) == text
