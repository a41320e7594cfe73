"""Plan × run specification × rank identity → `RankCommand`: what one rank runs, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ompbind.commands import rank_variables as names
from ompbind.commands.environment import (
    GroupIdentity,
    RankIdentity,
    RunSpec,
    fill_variables,
    list_parts,
    make_fields,
    make_identities,
    make_identity_variables,
    make_variables_and_fields,
)
from ompbind.commands.placeholders import Fields, fill
from ompbind.commands.rank_variables import Variables, apply_variables
from ompbind.cpuset import CpuSet
from ompbind.planning.plan import MemoryPolicy, Placement, Plan, find_first_cpu
from ompbind.record import Record
from ompbind.text import mask_text, mask_value, mask_words

_OF_PLAN = (
    names.OMPBIND_NUM_THREADS, names.OMPBIND_CPUS, names.OMPBIND_RESERVED_CPUS, names.OMPBIND_SERVICE_CPUS,
    *names.NAMES_OF_DEVICES,
)  # fmt: skip
"""The variables that a rank without a plan does not have."""

TCP, HTTP, TEXT, EXEC = "tcp:", "http:", "text:", "exec:"
"""What the text of --ready begins with; without one of these, it is a regular expression, as after TEXT."""


class RankCommand(Record):
    """All that is needed to start one rank.

    `argv` is the whole command, `env` its whole environment, `directory` the working directory, "" for the
    caller's. `cpus` is the affinity mask, None where the system cannot set one. The rank starts on the CPU
    `first`, where it stays if this CPU is isolated; None leaves this to the kernel. `memory` is the memory
    policy, None if it is inherited. In a run with groups, `group` is the group of the rank, `group_rank` its
    number there, and `ready` says when it is ready, "" for at once.
    """

    rank: int
    group: str = ""
    group_rank: int = 0
    ready: str = ""
    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: str = ""
    cpus: CpuSet | None
    first: int | None = None
    memory: MemoryPolicy | None = None

    @property
    def label(self) -> str:
        """The group and the number of the rank there, "load 2"; "" in a run without groups."""
        return f"{self.group} {self.group_rank}" if self.group else ""

    @property
    def name(self) -> str:
        """What messages call the rank: "rank 3", or "rank 3 (load 2)"."""
        return f"rank {self.rank} ({self.label})" if self.group else f"rank {self.rank}"


def make_commands(plan: Plan, spec: RunSpec) -> list[RankCommand]:
    """Return the commands of all ranks of a run that has ranks on this machine only."""
    return [
        make_command(part, identity, own)
        for part, own in list_parts(plan, spec)
        for identity in make_identities(len(part.placements))
    ]


def make_command(plan: Plan, identity: RankIdentity, spec: RunSpec) -> RankCommand:
    """Return the command of one rank, with its own copy of the environment.

    Raises PositionError for a placeholder with a negative value.
    """
    placement = plan.placements[identity.placement_index]
    variables, fields = make_variables_and_fields(plan, identity, spec)
    return _make_filled(identity, spec, variables, fields).replace(
        cpus=placement.cpuset if plan.machine.bindable else None,
        first=find_first_cpu(plan.machine, placement),
        memory=placement.memory,
    )


def make_unbound_commands(sizes: Sequence[int], spec: RunSpec, allowed: CpuSet) -> list[RankCommand]:
    """Return the commands of ranks without a plan: they inherit the environment and the affinity mask.

    `sizes` has the number of ranks of each group. Each gets the variables of the user and its number in the
    run, but no variable of a plan: each may use all devices of the caller. The placeholder {cpus} stands for
    all `allowed` CPUs, {threads} for their number.
    """
    placement = Placement(rank=0, cpus=tuple(allowed), threads=len(allowed))
    cpus = dict.fromkeys((own.name for own in spec.groups), str(allowed))
    commands: list[RankCommand] = []
    for size, own in zip(sizes, spec.parts, strict=True):
        if own.name:
            first, run_size = len(commands), sum(sizes)
            group = GroupIdentity(name=own.name, first_rank=first, run_size=run_size, cpus=cpus)
            own = own.replace(group=group)
        for identity in make_identities(size):
            numbers = make_identity_variables(placement, identity, own)
            fields = make_fields(numbers, identity, placement, own.group)
            removed = dict.fromkeys(own.removed_variables)
            variables = {**removed, **numbers, **dict.fromkeys(_OF_PLAN), **fill_variables(own, fields)}
            commands.append(_make_filled(identity, own, variables, fields))
    return commands


def _make_filled(identity: RankIdentity, spec: RunSpec, variables: Variables, fields: Fields) -> RankCommand:
    """Return the command of a rank with these variables, with its placeholders filled in, not bound."""
    env = dict(spec.base)
    apply_variables(variables, env)
    wrapper = (fill(word, fields, "--wrap") for word in spec.wrap)
    return RankCommand(
        rank=spec.number(identity),
        group=spec.group.name if spec.group else "",
        group_rank=identity.rank,
        ready=fill(spec.ready, fields, "--ready"),
        argv=(*wrapper, *_fill_argv(spec, fields)),
        env=env,
        directory=fill(spec.chdir, fields, "--chdir"),
        cpus=None,
    )


def _fill_argv(spec: RunSpec, fields: Fields) -> tuple[str, ...]:
    if not spec.fill_argv:
        return spec.argv
    return tuple(fill(word, fields, "the command", is_command=True) for word in spec.argv)


def make_spec_before_plan(spec: RunSpec, rank: int = 0, local_rank: int = 0, *, group: str = "") -> RunSpec:
    """Return the specification with placeholders of one rank filled, as far as is known before the plan.

    Placeholders that depend on the plan stay; with a `group`, so does the number of the rank in the run.
    """
    fields: Fields = {"rank": rank, "local_rank": local_rank, "run_id": spec.run_id}
    if group:
        fields = {"local_rank": 0, "run_id": spec.run_id, "group": group, "group_rank": 0}
    return spec.replace(
        argv=_fill_argv(spec, fields),
        fill_argv=False,
        wrap=tuple(fill(word, fields, "--wrap", is_command=True) for word in spec.wrap),
        chdir=fill(spec.chdir, fields, "--chdir", is_command=True),
    )


def mask_secrets(spec: RunSpec) -> RunSpec:
    """Return what ranks have in common with "***" for secret values, for reports and messages.

    Masked are the variables of the user, and values in the command, in its wrapper and in its check.
    """
    return spec.replace(
        groups=tuple(map(mask_secrets, spec.groups)),
        argv=mask_words(spec.argv),
        wrap=mask_words(spec.wrap),
        ready=mask_text(spec.ready),
        added_variables=tuple((name, mask_value(name, value)) for name, value in spec.added_variables),
    )
