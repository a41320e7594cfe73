"""Measure the CPU time of planning for growing machines and numbers of ranks.

    python benchmarks/planning.py [--rounds N]

It prints the median CPU time of `make_plan` over rounds:

    1. every strategy with 1,024 ranks on 4,096 CPUs, with two CPUs per core and with one;
    2. `balanced` on machines of doubling size, with a number of ranks that does not divide the cores, and the
       ratio to the previous machine;
    3. 1,024 ranks in 16 groups on 4,096 CPUs: groups that request cores, and groups that divide all cores.

The exit code is 1 if planning 1,024 ranks takes too long, compared with simple work of Python.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import read_rounds
from ompbind.machine.model import Machine
from ompbind.planning.planner import Requests, make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies import STRATEGIES
from tests.machines import Shape, make_machine

LIMIT, GROUPS_LIMIT = 2.5, 20.0
"""How long planning 1,024 ranks may take at most, also in groups, in times of `time_python`."""

THREADED = Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2)
SINGLE = Shape(packages=8, nodes=4, l3s=8, cores=16, smt=1)
GROWING = [Shape(packages=packages, nodes=4, l3s=8, cores=8, smt=1) for packages in (2, 4, 8, 16, 32)]


def time_python() -> float:
    """Return the CPU time in seconds of work that planning consists of: sets of numbers, and their order."""
    begin = time.process_time()
    for first in range(0, 131_072, 16):
        sorted({*range(first, first + 64)} & {*range(first + 32, first + 128)})
    return time.process_time() - begin


def time_plan(machine: Machine, request: Requests, rounds: int) -> tuple[float, float]:
    """Return the median CPU time in seconds of making a plan, and in times of `time_python`.

    Both are measured in turn: the speed of a CPU changes within seconds, also by a factor of two.
    """
    times, ratios, before = [], [], time_python()
    for _ in range(rounds):
        begin = time.process_time()
        make_plan(machine, request)
        times.append(time.process_time() - begin)
        after = time_python()
        ratios.append(2 * times[-1] / (before + after))
        before = after
    return statistics.median(times), statistics.median(ratios)


def measure_strategies(rounds: int) -> float:
    """Print the time of each strategy on both large machines; return the longest, relative to simple work."""
    machines = [make_machine(THREADED), make_machine(SINGLE)]
    print(f"{'1,024 ranks on 4,096 CPUs':26} of 2,048 cores  of 4,096 cores   (ms of CPU time)")
    longest = 0.0
    for name, strategy in STRATEGIES.items():
        if strategy.level is None or strategy.level in machines[0].levels:
            request = Request(ranks=1024, strategy=name)
            spent = [time_plan(machine, request, rounds) for machine in machines]
            longest = max(longest, *(ratio for _, ratio in spent))
            print(f"{name:26} {spent[0][0] * 1000:14.1f}  {spent[1][0] * 1000:14.1f}")
    return longest


def measure_growth(rounds: int) -> float:
    """Print the time of `balanced` on growing machines; return the time on the largest in seconds."""
    print(f"\n{'balanced':26} {'ms':>14}  {'x previous machine':>20}")
    before = 0.0
    for shape in GROWING:
        machine, ranks = make_machine(shape), shape.all_cores // 3 - 1
        spent, _ = time_plan(machine, Request(ranks=ranks), rounds)
        more = f"{spent / before:20.2f}" if before else ""
        print(f"{f'{ranks:,} ranks, {shape.all_cores:,} cores':26} {spent * 1000:14.1f}  {more}")
        before = spent
    return before


def measure_groups(rounds: int) -> float:
    """Print the time of 16 groups of 64 ranks on 4,096 CPUs; return the longest, relative to simple work."""
    print(f"\n{'1,024 ranks in 16 groups':26} {'ms':>14}")
    machine, longest = make_machine(THREADED), 0.0
    for label, cores in (("one core for each rank", 1), ("equal parts for groups", None)):
        requests = [Request(group=f"g{number}", ranks=64, cores=cores) for number in range(16)]
        spent, ratio = time_plan(machine, requests, rounds)
        longest = max(longest, ratio)
        print(f"{label:26} {spent * 1000:14.1f}")
    return longest


def main() -> int:
    """Run all measurements; return 1 if planning 1,024 ranks on 4,096 CPUs takes longer than the limits."""
    rounds = read_rounds(__doc__, default=9)
    longest = measure_strategies(rounds)
    measure_growth(rounds)
    in_groups = measure_groups(rounds)
    print("\n1,024 ranks, compared with simple work of Python")
    is_missed = False
    for label, ratio, limit in (("in one group", longest, LIMIT), ("in 16 groups", in_groups, GROUPS_LIMIT)):
        is_missed |= ratio > limit
        print(f"{label:26} {ratio:14.1f} x (at most {limit:g} x)")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
