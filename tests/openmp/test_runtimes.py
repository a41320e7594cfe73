"""Which OpenMP runtimes conflict in a process, and what their versions can do."""

from ompbind.openmp.runtimes import OmpRuntime, find_aborting_pair, find_intercepting_pair


def test_conflicts_are_found_from_the_row_of_either_runtime_and_versions_differ():
    every = set(OmpRuntime)
    assert find_intercepting_pair(every) == (OmpRuntime.GOMP, OmpRuntime.LLVM)
    assert find_aborting_pair(every) == (OmpRuntime.LLVM, OmpRuntime.INTEL, "OMP: Error #15")
    assert find_aborting_pair({OmpRuntime.GOMP, OmpRuntime.INTEL, None}) is None
    assert find_intercepting_pair({OmpRuntime.LLVM, OmpRuntime.INTEL}) is None
    assert not OmpRuntime.INTEL.runs_on("aarch64")
    found = {
        (str(runtime), version): (runtime.resets(version), runtime.forks_safely(version))
        for runtime in OmpRuntime
        for version in (None, 14, 15, 16)
    }
    assert found["gomp", None] == (False, True)
    assert found["intel", None] == found["llvm", None] == found["llvm", 16] == (True, True)
    assert (found["llvm", 14], found["llvm", 15]) == ((False, False), (True, False))
