"""Commands of ranks without a plan: they inherit the affinity mask, and may use all devices of the caller."""

from ompbind.cpuset import CpuSet
from ompbind.planning.plan import Placement
from ompbind.planning.rank_command import (
    RankCommand,
    RankIdentity,
    RunSpec,
    fill_argv,
    fill_text,
    fill_variables,
    make_fields,
    make_identities,
    make_identity_variables,
    make_wrapper,
)
from ompbind.planning.rank_variables import (
    NAMES_OF_DEVICES,
    OMPBIND_CPUS,
    OMPBIND_RESERVED_CPUS,
    OMPBIND_SERVICE_CPUS,
    apply_variables,
)


def make_unbound_commands(size: int, spec: RunSpec, allowed: CpuSet) -> list[RankCommand]:
    """Return the commands of ranks without a plan: they inherit the environment and the affinity mask.

    Each gets the variables of the user and its number in the run, so that ranks can divide their work, but no
    variable of a plan: each may use all devices of the caller. The placeholder {cpus} stands for all
    `allowed` CPUs.
    """
    placement = Placement(rank=0, cpus=tuple(allowed))
    return [_make_unbound_command(placement, identity, spec) for identity in make_identities(size)]


def _make_unbound_command(placement: Placement, identity: RankIdentity, spec: RunSpec) -> RankCommand:
    numbers = make_identity_variables(placement, identity, spec)
    fields = make_fields(numbers, identity)
    env = dict(spec.base)
    of_plan = (OMPBIND_CPUS, OMPBIND_RESERVED_CPUS, OMPBIND_SERVICE_CPUS, *NAMES_OF_DEVICES)
    apply_variables({**dict.fromkeys(spec.removed_variables), **numbers, **dict.fromkeys(of_plan)}, env)
    apply_variables(fill_variables(spec, fields), env)
    return RankCommand(
        rank=identity.rank,
        argv=(*make_wrapper(identity, spec, fields), *fill_argv(spec, fields)),
        env=env,
        directory=fill_text(spec.chdir, fields, "--chdir"),
        cpus=None,
    )
