"""Servers that start several workers: the warning that these are not ranks."""

import pytest

from ompbind.compat.frameworks import FrameworkInput
from ompbind.compat.reading import fill_request
from ompbind.masks.parse import parse_mask
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from tests.machines import Shape, make_machine

DUAL = make_machine(Shape(packages=2, cores=4, smt=2))


def warnings_for(framework, command, for_workers=False, **options):
    words = tuple(command.split())
    source = FrameworkInput(machine=DUAL, env={}, command=words, for_workers=for_workers)
    plan = make_plan(DUAL, fill_request(Request(**options), framework, source))
    return [note.text for note in plan.notes if note.warning]


@pytest.mark.parametrize(
    ("framework", "command", "workers"),
    [
        ("vllm", "vllm serve MODEL -tp 2", 2),
        ("vllm", "vllm serve --tensor_parallel_size=2 MODEL -dp 2 --pipeline-parallel-size 3", 12),
        ("sglang", "python -m sglang.launch_server --model-path MODEL --tp 4", 4),
        ("sglang", "sglang serve --tp-size=2 --pp-size 2 --dp 8", 32),
        ("sglang", "sglang serve --data-parallel-size 2", 2),
        ("sglang", "sglang serve --tp 4 --dp 4 --enable-dp-attention", 4),
        ("sglang", "sglang serve --tp-size=2 --pp-size 2", 4),
        ("vllm", "vllm serve MODEL", 1),
        ("vllm", "vllm serve MODEL -tp 1 --port 8000", 1),
        ("vllm", "vllm serve MODEL --tp 2 -tp x -tp", 1),
        ("sglang", "python -m sglang.launch_server -tp 2", 1),
    ],
)
def test_workers_of_a_server_in_a_rank_are_a_warning(framework, command, workers):
    plan = f"ompbind plan -n {workers} --compat {framework} --format {framework}"
    text = (
        f"each server starts {workers} workers, and a rank has the CPUs of one worker;"
        f' use eval "$({plan})" instead of ompbind run'
    )
    assert warnings_for(framework, command) == ([text] if workers > 1 else [])


@pytest.mark.parametrize("ranks", [None, 2, 4])
def test_a_plan_for_workers_needs_a_list_for_each(ranks):
    text = "the server starts 4 workers, and the plan has 2 CPU lists; use -n 4"
    found = warnings_for("vllm", "vllm serve MODEL -tp 2 -dp 2", for_workers=True, ranks=ranks)
    assert found == ([text] if ranks == 2 else [])


def test_workers_of_ranks_that_are_not_bound_are_no_warning():
    assert warnings_for("vllm", "vllm serve MODEL -tp 2", mask=parse_mask("none")) == []
