"""What bench proposes on machines of different kinds."""

import pytest

from ompbind.bench.candidates import MOST, make_proposal
from ompbind.cpuset import CpuSet
from ompbind.machine.model import CoreKind
from ompbind.machine.sources.reading import read_machine
from ompbind.masks.parse import parse_mask
from ompbind.openmp.binding import Bind
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine
from tests.recordings import recorded

XEON = make_machine(Shape(packages=2, cores=8, smt=2))
EPYC = make_machine(Shape(packages=2, nodes=4, l3s=2, cores=4, smt=1))
POWER = make_machine(Shape(packages=2, cores=4, smt=8, numbering="adjacent"))
LAPTOP = make_machine(Shape(cores=6, smt=1)).replace(
    kinds=(
        CoreKind(name="performance", cpus=CpuSet((0, 1)), strength=1024, source="type"),
        CoreKind(name="efficiency", cpus=CpuSet((2, 3, 4, 5)), strength=600, source="type"),
    )
)
VM = make_machine(Shape(cores=2))
SMALL = make_machine(Shape(cores=1))


def propose(machine, *fixed, **request):
    """The proposed choices as texts; "" is the default plan."""
    made = make_proposal(machine, Request(**request), ("ranks", *fixed))
    return [", ".join(f"{key}={text}" for key, text in choices) for choices in made]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (XEON, ["", "smt=all", "bind=thread", "memory=interleave", "smt=all, bind=thread"]),
        (EPYC, ["", "bind=thread", "memory=interleave"]),
        (
            POWER,
            ["", "smt=all", "smt=1", "smt=2", "bind=thread", "memory=interleave",
             "smt=all, bind=thread", "smt=1, bind=thread", "smt=2, bind=thread"],
        ),
        (LAPTOP, ["", "core-kind=performance", "bind=thread", "core-kind=performance, bind=thread"]),
        (VM, ["", "bind=thread"]),
        (SMALL, [""]),
    ],
    ids=["xeon", "epyc", "power", "laptop", "vm", "small"],
)  # fmt: skip
def test_choices_fit_the_machine(machine, expected):
    assert propose(machine) == expected


@pytest.mark.parametrize(
    ("machine", "numbers"),
    [(XEON, [1, 2]), (EPYC, [1, 2, 8, 16]), (POWER, [1, 2]), (LAPTOP, [1, 2, 4]), (VM, [1, 2]), (SMALL, [1])],
    ids=["xeon", "epyc", "power", "laptop", "vm", "small"],
)
def test_numbers_of_ranks_follow_the_domains(machine, numbers):
    made = make_proposal(machine, Request(), ())
    assert made[: len(numbers)] == tuple((("ranks", str(number)),) for number in numbers)
    assert {dict(choices)["ranks"] for choices in made} == {str(number) for number in numbers}
    assert len(made) <= MOST


def test_given_options_do_not_vary():
    assert propose(XEON, "smt", "memory", smt="all") == ["", "bind=thread"]
    assert propose(XEON, "bind", bind=Bind.EXACT) == ["", "smt=all", "memory=interleave"]
    assert propose(XEON, mask=parse_mask("none")) == [""]


def test_a_mask_decides_the_hardware_threads_unless_fewer_are_proposed():
    assert propose(XEON, mask=parse_mask("0-3,16-19")) == ["", "smt=1", "bind=thread", "smt=1, bind=thread"]
    assert propose(XEON, ranks=2, mask=parse_mask("0-3|8-11")) == ["", "bind=thread"]


def test_the_distance_of_ranks_matters_only_if_cores_are_idle():
    found = propose(XEON, "smt", "bind", "memory", "cores", ranks=2, cores=2)
    assert found == ["", "strategy=compact"]  # spread gives the plan of balanced


def test_nothing_is_proposed_that_the_quota_stops():
    assert propose(VM.replace(quota=1.5)) == ["", "bind=thread"]
    made = make_proposal(VM.replace(quota=1.0), Request(), ())
    assert {dict(choices)["ranks"] for choices in made} == {"1"}


RECORDED = {
    "rec-epyc7402-nps1": (["1", "2", "16"], {"smt=all", "bind=thread", "memory=interleave"}),
    "rec-epyc7401-8n": (["1", "2", "8", "16"], {"smt=all", "bind=thread", "memory=interleave"}),
    "syn-2s8c2t-roundrobin": (["1", "2"], {"smt=all", "bind=thread", "memory=interleave"}),
    "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t": (
        ["1", "2", "4"],
        {"core-kind=performance", "smt=all", "bind=thread"},
    ),
    "rec-power8-smt8": (["1", "2", "20"], {"smt=all", "smt=1", "smt=2", "bind=thread", "memory=interleave"}),
    "vm-x86-1cpu": (["1"], set()),
}
"""Recorded machines: the proposed numbers of ranks, and the single choices for one rank."""


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_machines(name):
    paths = recorded(f"dumps/{name}.tar.gz")
    if not paths:
        pytest.skip("the recordings are not here")
    machine = read_machine(str(paths[0]))
    numbers, singles = RECORDED[name]
    made = make_proposal(machine, Request(), ())
    assert list(dict.fromkeys(dict(choices)["ranks"] for choices in made)) == numbers
    assert {text for text in propose(machine) if text and "," not in text} == singles
