"""Plan × run specification × rank identity → the environment variables of one rank, before anything starts.

The *identity* of a rank is its number: global and local rank, both sizes, and its placement in the plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from ompbind.commands import rank_variables as names
from ompbind.commands.placeholders import OF_GROUP, Fields, fill
from ompbind.commands.rank_variables import Variables
from ompbind.openmp.runtimes import PASSIVE, PLACE_VARIABLES, WAIT_VARIABLES
from ompbind.openmp.variables import find_overridden_variables, make_openmp_variables
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.runtimes import counts_by_mask
from ompbind.record import Record


class RankIdentity(Record):
    """Which rank this is: `rank` of `size` in the whole job, `local_rank` of `local_size` on this machine.

    `placement_index` is the index of its placement in the plan. It is the local rank, unless the launcher has
    bound the rank already (the plan then has one placement only) or has given it GPUs of its own.
    """

    placement_index: int
    rank: int
    size: int
    local_rank: int
    local_size: int


class GroupIdentity(Record):
    """Which group of a run this is: its name, its first rank, and the number of ranks in the run.

    `cpus` are the CPUs of each group of the run by name, as list text.
    """

    name: str
    first_rank: int
    run_size: int
    cpus: Mapping[str, str]


class RunSpec(Record):
    """What all ranks of a run share: the command, the caller's environment, and the user's variables.

    `argv` is the command; its placeholders are filled with `fill_argv`. A rank runs as the words of `wrap`
    and then the command, in the directory `chdir`, "" for the caller's. `ready` says when it is ready
    (--ready), "" for at once. The texts of `wrap`, `chdir`, `ready` and `added_variables` have placeholders.

    `base` is the environment of the caller. `added_variables` are (NAME, value) pairs of --env, --env-file,
    --rendezvous and --compat. Ranks do not inherit `removed_variables`: variables that gave options to
    ompbind, or that would confuse the program. With `keep_env`, all other inherited variables stay as they
    are. `freeze_directory` is put first in PYTHONPATH, "" for none: its sitecustomize keeps thread counts.

    `name` is the name of the group, "" without groups. Of a run with groups, `groups` are the specifications
    of its groups, in the order of the groups of the plan; the other fields have the values of the first
    group. `group` is which group this is, None for a run without groups and before the plan.
    """

    argv: tuple[str, ...]
    fill_argv: bool = False
    wrap: tuple[str, ...] = ()
    chdir: str = ""
    ready: str = ""
    run_id: str
    base: Mapping[str, str]
    added_variables: tuple[tuple[str, str], ...] = ()
    keep_env: bool = False
    removed_variables: tuple[str, ...] = ()
    freeze_directory: str = ""
    name: str = ""
    groups: tuple[RunSpec, ...] = ()
    group: GroupIdentity | None = None

    @property
    def parts(self) -> tuple[RunSpec, ...]:
        """The specifications that each have one command: of the groups, or of the run itself."""
        return self.groups or (self,)

    def number(self, identity: RankIdentity) -> int:
        """Return the number of a rank in the whole run, in which all groups count."""
        return identity.rank + (self.group.first_rank if self.group else 0)


def make_identities(size: int) -> list[RankIdentity]:
    """Return the identities of the ranks of a run with `size` ranks, all on this machine."""
    sizes = {"size": size, "local_size": size}
    return [RankIdentity(placement_index=i, rank=i, local_rank=i, **sizes) for i in range(size)]


def list_parts(plan: Plan, spec: RunSpec) -> list[tuple[Plan, RunSpec]]:
    """Return each group of a run, its plan and its specification; of a run without groups, the run itself."""
    if not plan.groups:
        return [(plan, spec)]
    pairs = zip(plan.numbered_parts, spec.groups, strict=True)
    return [(part, own.replace(group=identify_group(plan, first, part))) for (first, part), own in pairs]


def identify_group(plan: Plan, first: int, part: Plan) -> GroupIdentity | None:
    """Return which group of a plan a part is, with its first rank; None for a run without groups."""
    if not plan.groups:
        return None
    cpus = {group.request.group: str(group.used) for group in plan.groups}
    return GroupIdentity(name=part.request.group, first_rank=first, run_size=len(plan.placements), cpus=cpus)


def make_all_variables(plan: Plan, spec: RunSpec) -> list[Variables]:
    """Return the variables of all ranks of a run on this machine, as `make_variables`."""
    return [
        make_variables(part, identity, own)
        for part, own in list_parts(plan, spec)
        for identity in make_identities(len(part.placements))
    ]


def make_variables(plan: Plan, identity: RankIdentity, spec: RunSpec) -> dict[str, str | None]:
    """Return all variables of one rank that ompbind sets (value) or removes (None).

    With --keep-env, variables that the caller's environment already has are left out.
    """
    return make_variables_and_fields(plan, identity, spec)[0]


def make_variables_and_fields(
    plan: Plan, identity: RankIdentity, spec: RunSpec
) -> tuple[dict[str, str | None], Fields]:
    """Return all variables of one rank, and the values of its placeholders."""
    placement, base = plan.placements[identity.placement_index], spec.base
    numbers = make_identity_variables(placement, identity, spec)
    fields = make_fields(numbers, identity, placement, spec.group)
    threads = make_thread_variables(plan, identity.placement_index)
    if spec.keep_env:
        pair = set(PLACE_VARIABLES)  # set together or not: runtimes differ on one without the other
        kept = base.keys() | (pair if pair & base.keys() else set())
        threads = {name: value for name, value in threads.items() if name not in kept}
    # a rank without devices inherits none of a rank of another run
    devices: Variables = {name: None for name in names.NAMES_OF_DEVICES if name in base}
    if placement.devices:
        from ompbind.commands.device_variables import make_device_variables  # noqa: PLC0415 - door: devices

        devices = make_device_variables(placement, plan, base, keep_env=spec.keep_env)
    defaults = plan.request.compat.variables if plan.request.compat else ()
    if placement.waits_passively and not any(name in base for name in WAIT_VARIABLES):
        defaults += (PASSIVE,)
    variables = {
        **dict.fromkeys(name for name in spec.removed_variables if name in base),
        **{name: value for name, value in defaults if name not in base},
        **threads,
        **numbers,
        **devices,
        **fill_variables(spec, fields),
    }
    workload = plan.request.workload
    if workload and workload.preload:  # --preload is already merged with LD_PRELOAD of --env, if there is one
        preload = ":".join(workload.preload)
        is_filled = "LD_PRELOAD" in dict(spec.added_variables)
        variables["LD_PRELOAD"] = fill(preload, fields, "LD_PRELOAD") if is_filled else preload
    if spec.freeze_directory:  # put before the user's own directories, which all stay, also an empty one
        path = variables.get("PYTHONPATH", base.get("PYTHONPATH")) or ""
        others = [item for item in path.split(":") if item != spec.freeze_directory] if path else []
        variables["PYTHONPATH"] = ":".join([spec.freeze_directory, *others])
    return variables, fields


def make_thread_variables(plan: Plan, rank: int) -> dict[str, str | None]:
    """Return every variable that sets the threads of a rank and their binding; None removes a variable."""
    placement = plan.placements[rank]
    return make_openmp_variables(
        placement.cpus,
        placement.places_text,
        placement.threads,
        plan.binding,
        processes=placement.processes,
        by_mask=counts_by_mask(plan, placement),
    )


def fill_variables(spec: RunSpec, fields: Fields) -> dict[str, str]:
    """Return the variables of the user for one rank."""
    return {name: fill(value, fields, name) for name, value in spec.added_variables}


def find_changed(plan: Plan, spec: RunSpec, index: int = 0) -> dict[str, str | None]:
    """Return the caller's variables that ompbind changes (new value) or removes (None) for ranks.

    In each group, the placement with an index stands for all ranks.

    Nothing is returned inside another run of ompbind: that run has set these variables, not the user.
    """
    changed: dict[str, str | None] = {}
    for part, own in list_parts(plan, spec):
        if not (own.keep_env or names.OMPBIND_RANK in own.base):
            changed |= find_overridden_variables(own.base, make_thread_variables(part, index))
    return changed


def make_identity_variables(
    placement: Placement, identity: RankIdentity, spec: RunSpec
) -> dict[str, str | None]:
    """Return the variables with the number of a rank, its run and its CPUs.

    The CPUs are kernel list text if they are in rising order, else one by one in thread order.
    """
    in_order = placement.cpus == tuple(placement.compute)
    groups: Variables = {name: None for name in names.NAMES_OF_GROUPS if name in spec.base}
    if spec.group:
        own = (spec.group.name, str(identity.rank), str(identity.size))
        groups = dict(zip(names.NAMES_OF_GROUPS, own, strict=True))
    return {
        "RANK": str(identity.rank),
        "LOCAL_RANK": str(identity.local_rank),
        "WORLD_SIZE": str(identity.size),
        "LOCAL_WORLD_SIZE": str(identity.local_size),
        names.OMPBIND_RUN_ID: spec.run_id,
        names.OMPBIND_RANK: str(spec.number(identity)),
        names.OMPBIND_ATTEMPT: "1",
        names.OMPBIND_CPUS: str(placement.compute) if in_order else ",".join(map(str, placement.cpus)),
        names.OMPBIND_RESERVED_CPUS: str(placement.reserved),
        names.OMPBIND_SERVICE_CPUS: str(placement.service_cpus),
        names.OMPBIND_NUM_THREADS: str(placement.process_threads),
        names.OMPBIND_WORKER_NAME: f"{spec.run_id}-rank-{spec.number(identity)}",
        **groups,
    }


def make_fields(
    numbers: Variables, identity: RankIdentity, placement: Placement, group: GroupIdentity | None
) -> Fields:
    """Return the values of all placeholders for one rank; `numbers` are the variables of its identity."""
    fields: dict[str, int | str] = {
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "size": identity.size,
        "threads": placement.process_threads,
        "cpus": numbers[names.OMPBIND_CPUS] or "",
        "run_id": numbers[names.OMPBIND_RUN_ID] or "",
    }
    if group is not None:
        fields |= {
            "rank": identity.rank + group.first_rank,
            "size": group.run_size,
            "group": group.name,
            "group_rank": identity.rank,
            "group_size": identity.size,
            **{f"{OF_GROUP}{name}": cpus for name, cpus in group.cpus.items()},
        }
    return fields
