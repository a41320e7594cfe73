"""Metrics: patterns, names, and the numbers in the output of ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ompbind.bench.metrics import NAME_WIDTH, make_metrics, read_pattern, read_values
from ompbind.errors import MeasurementError, PositionError
from ompbind.execution.readiness import BLOCK_BYTES

RATE = r"tokens/s: ([0-9.,e+-]+)"


def write(directory, *outputs, errors=()):
    for rank, output in enumerate(outputs):
        data = output if isinstance(output, bytes) else output.encode()
        (directory / f"{rank}.out").write_bytes(data)
        (directory / f"{rank}.err").write_text(dict(enumerate(errors)).get(rank, ""))


def read(directory, pattern=RATE, *, ranks=1, **options):
    return read_values(make_metrics((pattern,), **options), str(directory), map(str, range(ranks)))[0]


def read_wrong(directory, pattern=RATE, **options):
    with pytest.raises(MeasurementError) as raised:
        read(directory, pattern, **options)
    return raised.value.message


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4))
def test_any_pattern_gives_a_metric_or_an_error_with_a_position(texts):
    try:
        metrics = make_metrics(texts)
    except PositionError as error:
        start, stop = error.span
        assert error.text in texts
        assert 0 <= start <= stop <= len(error.text) + 1
        return
    assert len({metric.name for metric in metrics}) == len(texts)
    assert all(metric.name.isprintable() and len(metric.name) <= NAME_WIDTH for metric in metrics)


@pytest.mark.parametrize(("pattern", "message", "at"), [
    ("tokens/s: [0-9.]+", "no group", 0), ("tokens: ([0-9.]+", "unterminated subpattern", 8),
    ("(*)", "nothing to repeat", 1), ("(a{99999999999})", "too large", 0),
])  # fmt: skip
def test_a_wrong_pattern_is_refused_with_its_position(pattern, message, at):
    with pytest.raises(PositionError, match=message) as raised:
        read_pattern(pattern)
    assert raised.value.span[0] == at
    assert raised.value.hint


TIME = r"^time (\d+) s$"


@pytest.mark.parametrize(("pattern", "output", "value"), [
    (RATE, "tokens/s: 1\ntokens/s: 2\nend\n", 2.0), (RATE, "tokens/s: 1 tokens/s: 2\n", 2.0),
    (RATE, "10% tokens/s: 1\r20% tokens/s: 2\r", 2.0), (RATE, "tokens/s: 7", 7.0),
    (RATE, "\x1b]0;a title\x07tokens\x1b[m/s: \x1b[1m5\x1b[K\ntokens/s: \x1b[2mnone\x1b[0m\n", 5.0),
    (RATE, "tokens/s: 1,234,567.5\n", 1234567.5), (RATE, "tokens/s: 1e-3\n", 0.001),
    (RATE, "tokens/s: .5\n", 0.5), (RATE, "tokens/s: +3.\n", 3.0),
    (RATE, b"\xff\x00\xfe tokens/s: 3\xe9\n\x80", 3.0),
    (RATE, b"x" * (2 * BLOCK_BYTES - 12) + b"tokens/s: 123456" + b"y" * BLOCK_BYTES, 123456.0),
    (RATE, b"x\n" * BLOCK_BYTES + b"tokens/s: 8\n" + b"y\n" * BLOCK_BYTES, 8.0),
    (RATE, "é" * BLOCK_BYTES + " tokens/s: 9", 9.0), (r"rate\D+(\d+)", "rate\n5\nrate 3\nrate\n7\n", 3.0),
    (TIME, "x 1\ntime 2 s\nthe time 3 s\ntime 4 seconds\n", 2.0), (r"a (\d+)|b", "a 5\nb\n", 5.0),
    (r"^0,([\d.]+),", "0,123.5,7", 123.5), (r"in ([\d.]+)", "12 requests in 3.5s, 4 errors", 3.5),
    (r"(\d+),", "5,6", 5.0),
], ids=range(19))  # fmt: skip
def test_the_last_match_within_a_line_is_the_value(tmp_path, pattern, output, value):
    write(tmp_path, output)
    assert read(tmp_path, pattern) == value


def test_values_of_ranks_are_combined_and_standard_error_counts_if_standard_output_has_no_match(tmp_path):
    write(tmp_path, "tokens/s: 1\n", "nothing\n", errors=("tokens/s: 5\n", "tokens/s: 7\n"))
    assert (read(tmp_path, ranks=2, higher=True), read(tmp_path, ranks=2)) == (8.0, 7.0)
    write(tmp_path, "time 3\nlatency 5\n", errors=("memory 7\n",))
    metrics = make_metrics((r"latency (\d+)", r"memory (\d+)", r"time (\d+)", r"time=(\d+)"))
    assert [metric.name for metric in metrics] == ["latency", "memory", "time", "time 2"]
    assert read_values(metrics[:3], str(tmp_path), ["0"]) == (5.0, 7.0, 3.0)


def test_an_error_names_the_pattern_the_rank_and_its_last_lines(tmp_path):
    assert "written nothing" in read_wrong(tmp_path)
    write(tmp_path, "tokens/s: 1", "start\nloading\x07\x1b[31m\n\nno model\n")
    message = read_wrong(tmp_path, r"tokens/s: (\d+)", ranks=2)
    assert r"'tokens/s: (\d+)'" in message
    assert "rank 1" in message
    assert message.endswith("start | loading? | no model")
    write(tmp_path, "x" * 100_000)
    assert len(read_wrong(tmp_path)) < 400


PART, NO_NUMBER, NOT_COMPARED = "only a part of the number", "not a decimal number", "cannot be compared"


@pytest.mark.parametrize(("pattern", "line", "message"), [
    (r"t: ([0-9.]+)", "t: 1,234.5", f"'1' in the output of rank 0 is {PART} 1,234.5"),
    (r"([0-9.]+) t", "1,234 t", f"{PART} 1,234"), (r"t: (\d+)", "t: 12.5", f"{PART} 12.5"),
    (r"t: ([0-9.]+)", "t: 1.5e-3", f"{PART} 1.5e-3"),
    (r"t.*([0-9.]+)", "t: 123", f"'3' in the output of rank 0 is {PART} 123"),
    *((r"t: (.*)", f"t: {word}", NO_NUMBER) for word in ("nan", "1,5", "1_000", "1.2.3", "0x1f", "٣")),
    *((r"t: (.*)", f"t: {word}", NOT_COMPARED) for word in ("0.0", "-2", "1e999")),
])  # fmt: skip
def test_what_is_no_number_above_0_is_refused(tmp_path, pattern, line, message):
    write(tmp_path, f"{line}\n")
    assert message in read_wrong(tmp_path, pattern)
