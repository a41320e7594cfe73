"""Pictures of sessions: valid XML, every run and every ratio once, all inside the picture, texts apart."""

from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.records import ComparisonResult, Conclusion, Rules, Session
from ompbind.report.bench.measurements import list_compared_runs, list_scaling
from ompbind.report.diagram.charts import render_bench_svg
from tests.bench.sessions import (
    HARDWARE,
    TWO_METRICS,
    make_candidate,
    make_conclusion,
    make_scaling_session,
    make_session,
    make_usual_session,
)

SVG = "{http://www.w3.org/2000/svg}"


def parse(session, conclusion):
    return ElementTree.fromstring(render_bench_svg(session, conclusion))


def texts(root):
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def extent(text):
    """The box of a text: left, top, right, bottom, by an estimate of 6 pixels for a character."""
    x, y, reach = int(text.get("x")), int(text.get("y")), 6 * len(text.text or "")
    kinds = (text.get("class") or "").split()
    left = x - reach if "end" in kinds else x - reach // 2 if "middle" in kinds else x
    return left, y - 10, left + reach, y + 3


def numbers(element):
    """All coordinates of an element as (x, y) pairs; of a path too."""
    get = {name: int(value) for name, value in element.items() if value.lstrip("-").isdigit()}
    yield from (
        (get[x], get[y])
        for x, y in (("x", "y"), ("cx", "cy"), ("x1", "y1"), ("x2", "y2"))
        if x in get and y in get
    )
    if "width" in get and "x" in get:
        yield get["x"] + get["width"], get["y"] + get["height"]


def check(session, conclusion):
    """Check what holds for the picture of any session; return its root."""
    root = parse(session, conclusion)
    width, height = int(root.get("width")), int(root.get("height"))
    for element in list(root.iter())[1:]:
        for x, y in numbers(element):
            assert 0 <= x <= width
            assert 0 <= y <= height
    boxes = [(text.text, extent(text)) for text in root.iter(f"{SVG}text") if text.text]
    for _, box in boxes:
        assert box[0] >= 0
        assert box[1] >= 0
        assert box[2] <= width
        assert box[3] <= height
    for (one, box), (other, further) in combinations(boxes, 2):
        apart = box[2] <= further[0] or further[2] <= box[0] or box[3] <= further[1] or further[3] <= box[1]
        assert apart, (one, other)
    return root


def dots(root):
    return [circle for circle in root.iter(f"{SVG}circle") if circle.get("class") == "dot"]


def test_every_run_and_every_round_is_a_dot():
    session, conclusion = make_usual_session()
    root = check(session, conclusion)
    runs = sum(map(len, list_compared_runs(session).values()))
    rounds = sum(comparison.rounds for comparison in conclusion.groups[0].comparisons)
    assert len(dots(root)) == runs + rounds - 12  # the reference has no ratios
    assert len([path for path in root.iter(f"{SVG}path") if path.get("class") == "interval"]) == 5


def test_results_are_words():
    shown = texts(check(*make_usual_session()))
    assert {"strategy=spread", "best, 1.12", "reference", "disqualified", "slower, 0.79"} <= set(shown)
    assert any("grey band: differences below 2 % do not matter" in text for text in shown)


def test_long_names_do_not_reach_the_charts():
    session = make_session(
        {make_candidate("unbound"): 1.0, make_candidate("x" * 200): 0.9}, command=("y" * 500,)
    )
    root = check(session, make_conclusion(session))
    names = [text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    assert all(extent(name)[2] < 240 for name in names)
    assert "".join(name.text for name in names).count("x") == 200, "wrapped, not cut"


def test_the_choice_is_marked():
    root = check(*make_usual_session())
    (chosen,) = (group for group in root.iter(f"{SVG}g") if group.get("class") == "chosen")
    assert chosen.findtext(f"{SVG}text") == "strategy=spread"


def test_light_and_dark():
    style = parse(*make_usual_session()).findtext(f"{SVG}style")
    light, dark = style.split("@media (prefers-color-scheme:dark){")
    for selector in ("text", ".page", ".dot", ".interval", ".grid", ".best", ".unbound"):
        assert selector in light
        assert selector in dark


@pytest.mark.parametrize("same_work", [False, True])
def test_the_scaling_curve(same_work):
    session, conclusion = make_scaling_session(rules=Rules(same_work=same_work))
    root = check(session, conclusion)
    marks = [circle for circle in root.iter(f"{SVG}circle") if circle.get("class") == "best-mark"]
    assert len(marks) == 4 + 2  # two in the legend
    assert {"best candidate", "without ompbind", "ideal", "8 ranks, smt=2"} <= set(texts(root))
    ideals = [
        point.ideal / list_scaling(session, conclusion)[0].value
        for point in list_scaling(session, conclusion)
    ]
    assert ideals == pytest.approx([1, 0.5, 0.25, 0.125] if same_work else [1, 1, 1, 1])


def test_dropped_candidates_are_in_the_scaling_curve_and_failed_candidates_are_not():
    session, _ = make_scaling_session()
    dropped, failed = (
        {"result": result} for result in (ComparisonResult.DROPPED, ComparisonResult.DISQUALIFIED)
    )
    changed = {each.name: dropped for each in session.candidates if each.ranks in (2, 4)}
    conclusion = make_conclusion(session, **{**changed, "4 ranks, smt=2": failed})
    points = list_scaling(session, conclusion)
    assert [point.candidate for point in points] == [
        "1 rank, smt=2", "2 ranks, smt=2", "4 ranks, default", "8 ranks, smt=2",
    ]  # fmt: skip
    assert all(point.unbound > point.value for point in points)


def test_a_sum_scales_with_ranks_and_a_latency_has_no_ideal():
    from ompbind.bench.records import Combine

    higher = TWO_METRICS[0].replace(combine=Combine.SUM)
    points = list_scaling(*make_scaling_session(metrics=(higher,)))
    assert [point.ideal / points[0].value for point in points] == [1, 2, 4, 8]
    session, conclusion = make_scaling_session(metrics=TWO_METRICS[1:])
    assert {point.ideal for point in list_scaling(session, conclusion)} == {None}
    assert "ideal" not in texts(check(session, conclusion))


def test_one_number_of_ranks_has_no_curve():
    assert "ranks" not in texts(check(*make_usual_session()))


def test_a_session_without_runs():
    check(Session(version="1", started=0.0, hardware=HARDWARE, command=("true",)), Conclusion(groups=()))
    session = make_session({"unbound": 1.0, "default": 1.0}, rounds=0)
    check(session, make_conclusion(session))


@given(st.text(max_size=300), st.text(min_size=1, max_size=60), st.floats(1e-6, 1e6), st.integers(0, 12))
def test_any_text_and_number(command, name, factor, rounds):
    factors = {make_candidate("unbound"): 1.0, make_candidate(f"x{name}"): factor}
    session = make_session(factors, rounds=rounds, command=(command,))
    check(session, make_conclusion(session, {f"x{name}": ComparisonResult.FASTER}))
