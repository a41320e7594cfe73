"""How long planning takes, alone, as machines and numbers of ranks grow.

    python benchmarks/planning.py [--rounds N]

CPU time of `make_plan` in this process, median over rounds: every strategy with 1,024 ranks on 4,096 CPUs,
once with hardware threads and once with a core for every CPU; then `balanced` on machines that double, with a
number of ranks that does not divide their cores, and what each doubling costs. Planning 1,024 ranks is to
take no more than 0.25 s; the exit code is 1 if it does.
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.rounds import read_rounds
from ompbind.machine.model import Machine
from ompbind.planning.planner import make_plan
from ompbind.planning.request import Request
from ompbind.planning.strategies.table import STRATEGIES
from tests.machines import Shape, make_machine

LIMIT_S = 0.25
THREADED = Shape(packages=8, nodes=4, l3s=4, cores=16, smt=2)
SINGLE = Shape(packages=8, nodes=4, l3s=8, cores=16, smt=1)
GROWING = [Shape(packages=packages, nodes=4, l3s=8, cores=8, smt=1) for packages in (2, 4, 8, 16, 32)]


def planning_s(machine: Machine, request: Request, rounds: int) -> float:
    """Return the median CPU time in seconds of making a plan."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        make_plan(machine, request)
        times.append(time.process_time() - begin)
    return statistics.median(times)


def measure_strategies(rounds: int) -> float:
    """Print what each strategy takes on both large machines; return the longest time in seconds."""
    machines = [make_machine(THREADED), make_machine(SINGLE)]
    print(f"{'1,024 ranks on 4,096 CPUs':26} of 2,048 cores  of 4,096 cores   (ms of CPU time)")
    longest = 0.0
    for name, strategy in STRATEGIES.items():
        if strategy.level is None or strategy.level in machines[0].levels:
            spent = [planning_s(machine, Request(ranks=1024, strategy=name), rounds) for machine in machines]
            longest = max(longest, *spent)
            print(f"{name:26} {spent[0] * 1000:14.1f}  {spent[1] * 1000:14.1f}")
    return longest


def measure_growth(rounds: int) -> float:
    """Print what `balanced` takes on machines that double; return the time on the largest in seconds."""
    print(f"\n{'balanced':26} {'ms':>14}  {'times the one before':>20}")
    before = 0.0
    for shape in GROWING:
        machine, ranks = make_machine(shape), shape.all_cores // 3 - 1
        spent = planning_s(machine, Request(ranks=ranks), rounds)
        more = f"{spent / before:20.2f}" if before else ""
        print(f"{f'{ranks:,} ranks, {shape.all_cores:,} cores':26} {spent * 1000:14.1f}  {more}")
        before = spent
    return before


def main() -> int:
    """Measure everything; tell whether planning 1,024 ranks on 4,096 CPUs stays below its limit."""
    rounds = read_rounds(__doc__, default=9)
    longest = measure_strategies(rounds)
    measure_growth(rounds)
    return int(longest > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
