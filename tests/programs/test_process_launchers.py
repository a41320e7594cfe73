"""Commands that start processes: what `ompbind exec` should bind, and which commands need no warning."""

import os
import sys

import pytest

from ompbind.programs.command import read_workload
from ompbind.programs.wrappers import read_launch
from tests.elves import make_elf


def read(line):
    name, *words = line.split()
    return read_launch(f"/usr/bin/{name}", words, os.environ)


@pytest.mark.parametrize(
    ("line", "text", "instead"),
    [
        ("mpirun -n 4 cat x", "mpirun -n 4", "mpirun -n 4 ompbind exec -- cat x"),
        (
            "mpiexec.hydra -np 2 cat a b c",
            "mpiexec.hydra -np 2",
            "mpiexec.hydra -np 2 ompbind exec -- cat a b ...",
        ),
        ("mpirun -x A=1 -- cat", "mpirun -x A=1", "mpirun -x A=1 ompbind exec -- cat"),
        ("srun -n 8 nonesuch", "srun", "srun ... ompbind exec -- CMD"),
        ("mpirun", "mpirun", "mpirun ... ompbind exec -- CMD"),
        ("jsrun -n 2 cat", "jsrun -n 2", "jsrun -n 2 ompbind exec -- cat"),
        ("flux run -n 4 cat", "flux run -n 4", "flux run -n 4 ompbind exec -- cat"),
        ("flux submit nonesuch", "flux submit", "flux submit ... ompbind exec -- CMD"),
    ],
)
def test_a_launcher_should_start_exec(line, text, instead):
    launch = read(line)
    assert (launch.text, launch.instead, launch.workers) == (text, instead, "")


@pytest.mark.parametrize(
    ("line", "instead", "workers"),
    [
        ("torchrun --nproc-per-node 4 t.py --lr 1",
         "torchrun --no-python --nproc-per-node 4 ompbind exec -- python t.py --lr ...", "4"),
        ("torchrun --standalone --nproc_per_node=gpu -m pkg.train",
         "torchrun --no-python --standalone --nproc_per_node=gpu ompbind exec -- python -m pkg.train", "gpu"),
        ("torchrun --no-python --nproc-per-node=2 ./app",
         "torchrun --no-python --nproc-per-node=2 ompbind exec -- ./app", "2"),
        ("python3 -m torch.distributed.run --nproc-per-node 2 t.py",
         "python3 -m torch.distributed.run --no-python --nproc-per-node 2 ompbind exec -- python t.py", "2"),
    ],
)  # fmt: skip
def test_torchrun_with_several_processes_should_start_exec(line, instead, workers):
    launch = read(line)
    assert (launch.instead, launch.workers) == (instead, workers)


@pytest.mark.parametrize(
    "line",
    [
        "mpirun -n 4 ompbind exec -- cat", "torchrun t.py", "torchrun --nproc-per-node 1 t.py",
        "torchrun --help",
        "torchrun --no-python --nproc-per-node 4 /x/ompbind exec -- python t.py", "flux jobs", "flux",
        "python -m pkg.train", "python t.py", "python", "cat mpirun",
    ],
)  # fmt: skip
def test_other_commands_start_no_processes_that_exec_should_bind(line):
    assert read(line) is None


@pytest.mark.parametrize("name", ["mpirun.openmpi", "mpiexec"])
def test_what_a_launcher_starts_is_not_known(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(make_elf(["libc.so.6"]))
    path.chmod(0o755)
    assert read_workload([str(path), "-n", "2", "x"], os.environ).opaque


def test_a_python_behind_torchrun_is_still_found(tmp_path):
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    workload = read_workload([str(script), "--nproc-per-node", "2", "t.py"], os.environ)
    assert workload.python
    assert [wrapper.launch.workers for wrapper in workload.wrappers] == ["2"]
