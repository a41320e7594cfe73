"""What bench proposes on machines of different kinds, and the texts of --vary."""

import pytest

from ompbind.bench.candidates import LIMIT, MOST, make_combinations, make_proposal, parse_variation
from ompbind.cpuset import CpuSet
from ompbind.errors import PositionError, RequestError
from ompbind.machine.model import CoreKind
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.request import Request
from ompbind.programs.command import Workload
from ompbind.programs.libraries import DetectedLibrary, DetectionMethod, name_library
from tests.machines import Shape, make_machine

XEON = make_machine(Shape(packages=2, cores=8, smt=2))
VM = make_machine(Shape(cores=2))
MACHINES = {
    "xeon": XEON,
    "epyc": make_machine(Shape(packages=2, nodes=4, l3s=2, cores=4, smt=1)),
    "power": make_machine(Shape(packages=2, cores=4, smt=8, numbering="adjacent")),
    "laptop": make_machine(Shape(cores=6, smt=1)).replace(
        kinds=(
            CoreKind(name="performance", cpus=CpuSet((0, 1)), strength=1024, source="type"),
            CoreKind(name="efficiency", cpus=CpuSet((2, 3, 4, 5)), strength=600, source="type"),
        )
    ),
    "vm": VM,
    "small": make_machine(Shape(cores=1)),
}


def propose(machine, *fixed, **request):
    """The proposed choices as texts; "" is the default plan."""
    made = make_proposal(machine, Request(**request), ("ranks", *fixed))
    return [", ".join(f"{key}={text}" for key, text in choices) for choices in made]


@pytest.mark.parametrize(("name", "numbers", "expected"), [
    ("xeon", "1 2", ["", "smt=all", "bind=thread", "memory=interleave", "smt=all, bind=thread"]),
    ("epyc", "1 2 8 16", ["", "bind=thread", "memory=interleave"]),
    (
        "power", "1 2",
        ["", "smt=all", "smt=1", "smt=2", "bind=thread", "memory=interleave",
         "smt=all, bind=thread", "smt=1, bind=thread", "smt=2, bind=thread"],
    ),
    ("laptop", "1 2 4", ["", "core-kind=performance", "bind=thread", "core-kind=performance, bind=thread"]),
    ("vm", "1 2", ["", "bind=thread"]), ("small", "1", [""]),
])  # fmt: skip
def test_choices_fit_the_machine_and_numbers_of_ranks_follow_the_domains(name, numbers, expected):
    assert propose(MACHINES[name]) == expected
    made = make_proposal(MACHINES[name], Request(), ())
    numbers = numbers.split()
    assert made[: len(numbers)] == tuple((("ranks", number),) for number in numbers)
    assert {dict(choices)["ranks"] for choices in made} == {*numbers}
    assert len(made) <= MOST


def test_given_options_do_not_vary():
    assert propose(XEON, "smt", "memory", smt="all") == ["", "bind=thread"]
    assert propose(XEON, "bind", bind=Bind.EXACT) == ["", "smt=all", "memory=interleave"]
    assert propose(XEON, mask=parse_mask("none")) == [""]
    assert propose(XEON, mask=parse_mask("0-3,16-19")) == ["", "smt=1", "bind=thread", "smt=1, bind=thread"]
    assert propose(XEON, ranks=2, mask=parse_mask("0-3|8-11")) == ["", "bind=thread"]


@pytest.mark.parametrize(("name", "request_fields", "counts"), [
    ("xeon", {}, "1 8"), ("vm", {}, "1"), ("xeon", {"ranks": 2}, "1 4"), ("xeon", {"smt": "all"}, "1 16"),
    ("small", {}, ""), ("xeon", {"mask": parse_mask("none")}, ""),
])  # fmt: skip
@pytest.mark.parametrize("library", ["libgomp.so.1", "libscipy_openblas64_-a1.so", "libtcmalloc.so"])
def test_fewer_threads_are_proposed_for_a_program_with_a_pool(name, request_fields, counts, library):
    found = DetectedLibrary(library=name_library(library), method=DetectionMethod.NEEDED, origin="app")
    made = propose(MACHINES[name], workload=Workload(libraries=(found,)), **request_fields)
    threads = [f"threads={number}" for number in counts.split()] if "tcmalloc" not in library else []
    assert [choice for choice in made if "threads" in choice] == threads
    assert "threads" not in "".join(propose(MACHINES[name], "threads", workload=Workload(libraries=(found,))))


def test_nothing_is_proposed_that_the_quota_stops():
    assert propose(VM.replace(quota=1.5)) == ["", "bind=thread"]
    made = make_proposal(VM.replace(quota=1.0), Request(), ())
    assert {dict(choices)["ranks"] for choices in made} == {"1"}


@pytest.mark.parametrize(("text", "key", "values"), [
    ("smt = 1 , all", "smt", ["1", "all"]), ("mask=0-1|2-3;0,1", "mask", ["0-1|2-3", "0,1"]),
    ("mask=0,2;", "mask", ["0,2"]), ("env=A=1,A=2", "env", ["A=1", "A=2"]),
])  # fmt: skip
def test_values_of_vary(text, key, values):
    found = parse_variation(text)
    assert [(value.key, value.text) for value in found] == [(key, value) for value in values]
    assert [text[slice(*value.span)] for value in found] == values


@pytest.mark.parametrize(("text", "message", "marked"), [
    ("", "option is missing", ""), ("smt", "smt has no values", "smt"), ("=1,2", "option is missing", ""),
    ("smt=1,,2", "value of smt is missing", ""), ("mask=;0", "value of mask is missing", ""),
    ("smt=1,2, 1", "the value 1 twice", "1"),
])  # fmt: skip
def test_wrong_texts_of_vary(text, message, marked):
    with pytest.raises(PositionError, match=message) as error:
        parse_variation(text)
    assert text[slice(*error.value.span)] == marked


def test_combinations_vary_the_last_option_fastest_and_have_a_limit():
    found = make_combinations([("smt", ("1", "2")), ("bind", ("rank", "thread"))])
    words = [" ".join(value for _, value in choices) for choices in found]
    assert words == ["1 rank", "1 thread", "2 rank", "2 thread"]
    assert make_combinations([]) == ()
    many = tuple(map(str, range(1000)))
    with pytest.raises(RequestError, match=f"1000000000 combinations .* {LIMIT}"):
        make_combinations([("threads", many), ("cores", many), ("reserve", many)])
    assert len(make_combinations([("threads", many[:LIMIT])])) == LIMIT
