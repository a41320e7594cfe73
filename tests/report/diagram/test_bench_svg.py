"""Pictures of sessions: valid XML, every run and every ratio once, all inside the picture, texts apart."""

from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.records import Combine, ComparisonResult, Conclusion, Rules, Session
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


def extent(text):
    """The box of a text: left, top, right, bottom, by an estimate of 6 pixels for a character."""
    x, y, reach = int(text.get("x")), int(text.get("y")), 6 * len(text.text or "")
    kinds = (text.get("class") or "").split()
    left = x - reach if "end" in kinds else x - reach // 2 if "middle" in kinds else x
    return left, y - 10, left + reach, y + 3


def check(session, conclusion):
    """Check what holds for the picture of any session; return its texts, and the number of its dots."""
    root = ElementTree.fromstring(render_bench_svg(session, conclusion))
    width, height = int(root.get("width")), int(root.get("height"))
    for element in list(root.iter())[1:]:
        get = {name: int(value) for name, value in element.items() if value.lstrip("-").isdigit()}
        for across, down in (("x", "y"), ("cx", "cy"), ("x1", "y1"), ("x2", "y2")):
            assert 0 <= get.get(across, 0) + get.get("width", 0) <= width
            assert 0 <= get.get(down, 0) + get.get("height", 0) <= height
    boxes = [(text.text, extent(text)) for text in root.iter(f"{SVG}text") if text.text]
    for _, box in boxes:
        assert min(box) >= 0
        assert box[2] <= width
        assert box[3] <= height
    for (one, box), (other, further) in combinations(boxes, 2):
        apart = box[2] <= further[0] or further[2] <= box[0] or box[3] <= further[1] or further[3] <= box[1]
        assert apart, (one, other)
    dots = sum(circle.get("class") == "dot" for circle in root.iter(f"{SVG}circle"))
    return [text for text, _ in boxes], dots


def test_every_run_and_every_round_is_a_dot_and_results_are_words():
    session, conclusion = make_usual_session()
    texts, dots = check(session, conclusion)
    runs = sum(map(len, list_compared_runs(session).values()))
    rounds = sum(comparison.rounds for comparison in conclusion.groups[0].comparisons)
    assert dots == runs + rounds
    assert {"strategy=spread", "best, 1.12", "reference", "disqualified", "faster, 1.10"} <= {*texts}
    assert "ranks" not in texts, "one number of ranks has no curve"


def ideals(session, conclusion):
    points = list_scaling(session, conclusion)
    return [point.ideal and point.ideal / points[0].value for point in points]


@pytest.mark.parametrize(
    ("same_work", "metrics", "expected"),
    [
        (True, None, [1, 0.5, 0.25, 0.125]),
        (False, None, [1, 1, 1, 1]),
        (True, TWO_METRICS[0].replace(combine=Combine.SUM), [1, 2, 4, 8]),
        (True, TWO_METRICS[1], [None] * 4),
    ],
    ids=["same work", "more work", "sum", "latency"],
)
def test_the_ideal_of_the_scaling_curve(same_work, metrics, expected):
    fields = {"rules": Rules(same_work=same_work)} | ({"metrics": (metrics,)} if metrics else {})
    session, conclusion = make_scaling_session(**fields)
    assert ideals(session, conclusion) == pytest.approx(expected)
    texts, _ = check(session, conclusion)
    assert {"best candidate", "without ompbind"} <= {*texts}
    assert ("ideal" in texts) == (expected[0] is not None)


def test_a_session_without_runs():
    check(Session(version="1", started=0.0, hardware=HARDWARE, command=("true",)), Conclusion(groups=()))
    session = make_session({"unbound": 1.0, "default": 1.0}, rounds=0)
    check(session, make_conclusion(session))


@given(st.text(max_size=300), st.text(min_size=1, max_size=60), st.floats(1e-6, 1e6), st.integers(0, 12))
def test_any_text_and_number(command, name, factor, rounds):
    factors = {make_candidate("unbound"): 1.0, make_candidate(f"x{name}"): factor}
    session = make_session(factors, rounds=rounds, command=(command,))
    check(session, make_conclusion(session, {f"x{name}": ComparisonResult.FASTER}))
