"""What verification expects of the ranks of a plan."""

from collections.abc import Iterable

from ompbind.inspection.expectation import ExpectedBinding, select_variables
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RankCommand


def expect_ranks(
    plan: Plan, run_id: str, commands: Iterable[RankCommand]
) -> dict[int, tuple[ExpectedBinding, int]]:
    """Return, for every rank of a plan, the expected binding of its threads and their number.

    `commands` are the commands of the ranks, in the order of the plan.
    """
    return {
        placement.rank: (
            ExpectedBinding(
                rank=placement.rank,
                cpus=placement.cpuset,
                service_cpus=placement.service_cpus,
                places=placement.places,
                bind=plan.request.bind,
                run_id=run_id,
                memory=placement.memory.kernel_text if placement.memory else "",
                variables=select_variables(command.env),
            ),
            placement.threads,
        )
        for placement, command in zip(plan.placements, commands, strict=True)
    }
