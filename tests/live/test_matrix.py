"""Every binding mode with every OpenMP runtime, alone and with a second runtime: the CPUs of all threads.

Threads and child processes print their affinity masks. `runtimes.predict_output` models what each runtime
does with places, and so which promises of a mode a runtime cannot keep.
"""

import itertools
import re

import pytest

from tests.live import runtimes
from tests.live.conftest import one_line, two_cpus


def rows():
    """Yield runtimes, modes and numbers of ranks; rows that prove nothing new are marked as long."""
    for name, bind, ranks in itertools.product(runtimes.RUNTIMES, runtimes.BINDS, (1, 2)):
        alone = bind in ("rank", "exact") or name in ("libomp 14", "libomp 19")
        is_corner = name == "libgomp" or (alone if ranks == 1 else bind == "exact" and "16" not in name)
        marks = [pytest.mark.part("torch")] * ("torch" in name) + [pytest.mark.long] * (not is_corner)
        yield pytest.param(name, bind, ranks, "", marks=marks)
    for name, bind in itertools.product(("libgomp", "libomp 19", "libiomp5"), ("thread", "exact")):
        yield pytest.param(name, bind, 1, "--hold")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.mark.parametrize(("name", "bind", "ranks", "hold"), [*rows()])
def test_threads_and_children_have_the_cpus_of_their_rank(ompbind, programs, name, bind, ranks, hold):
    """One rank has both CPUs, two ranks have one each; all cases of a program are one run."""
    cpus = two_cpus()
    of_ranks = [cpus] if ranks == 1 else [[cpu] for cpu in cpus]
    fewer = ("libomp 19", "libgomp of torch")
    cases = runtimes.pairs([other for other in runtimes.opposites(name) if ranks == 1 or other in fewer])
    mask = "|".join(",".join(map(str, own)) for own in of_ranks)
    command = (str(runtimes.build_program(name, programs)), *(pair.argument() for pair in cases))
    done = ompbind("run", *hold.split(), "-n", str(ranks), "-m", mask, "--bind", bind, "--", *command)
    assert done.returncode == 0, done.stderr
    output = runtimes.read_cases(done.stdout)
    for (rank, own), pair in itertools.product(enumerate(of_ranks), cases):
        kinds, whole = dict(output[rank][pair.argument()]), frozenset(own)
        assert not [kind for kind in kinds if not all(seen <= whole for seen in kinds[kind].values())]
        assert kinds.pop("end"), "the program exited too early"
        tasks = kinds.pop("task").values()
        places = [] if (bind, name) in runtimes.UNBOUND else runtimes.places_of(bind, [(cpu,) for cpu in own])
        runtimes.check_output(kinds, runtimes.predict_output(name, pair, own, places, reset=bind == "exact"))
        assert bind not in ("rank", "none") or set(tasks) == {whole}
    crashes = runtimes.RUNTIMES[name].crashes_forks and bind not in ("rank", "none")
    assert ("will crash in libomp of LLVM 1" in one_line(done.stderr)) == crashes
    assert not crashes or ranks > 1 or any("fork died" in kinds for kinds in output[0].values())


@pytest.mark.parametrize(("env", "options", "said"), [
    ({}, "", "0"), ({}, "--keep-env --bind thread", "0"), ({}, "-m none", "0"), ({}, "-t 1", ""),
    ({"OMP_WAIT_POLICY": "active"}, "", ""), ({}, "--env KMP_BLOCKTIME=1", ""),
    ({"GOMP_SPINCOUNT": "7"}, "", "7"), ({}, "--env GOMP_SPINCOUNT=8", "8"), ({}, "--env-file FILE", ""),
])  # fmt: skip
def test_threads_of_ranks_on_the_same_cpus_wait_passively(ompbind, programs, tmp_path, env, options, said):
    """OMP_DISPLAY_ENV shows what libgomp has read."""
    (tmp_path / "FILE").write_text("KMP_LIBRARY=serial\n")
    ranks = ("-n", "2", "-m", ",".join(map(str, two_cpus())), "-s", "all")
    command = ("env", str(runtimes.build_program("libgomp", programs)), "none")
    shown = ("--env", "OMP_DISPLAY_ENV=verbose", *options.split(), "--", *command)
    done = ompbind("run", *ranks, *shown, env=env, cwd=tmp_path)
    found = re.findall(r"GOMP_SPINCOUNT = '(.*)'", done.stderr)
    assert (done.returncode, len(found)) == (0, 2), done.stderr
    assert (found == ["0"] * 2) == (said == "0"), found
    assert said in ("", *found)
    shown = ompbind("plan", *ranks, *options.split(), env=env, cwd=tmp_path)
    assert ("wait passively" in one_line(shown.stdout)) == (said == "0"), shown.stdout
