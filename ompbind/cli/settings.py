"""The typed settings of verbs: each verb makes one record from the values that click has read.

The records of `run` and `bench` have files of their own: the other verbs do not need their supervisor.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from ompbind.cli.option import Sources, VerbContext
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import CoreKindName
from ompbind.masks.mask import Mask
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.configuration import Configuration
from ompbind.planning.request import MemoryMode, Sharing, Smt
from ompbind.record import Record

Settings = TypeVar("Settings", bound=Record)


def make_settings(kind: type[Settings], values: Mapping[str, Any], **others: Any) -> Settings:
    """Return a record: each field has the value of the option of its name, or the value in `others`."""
    options = {name: values[name] for name in kind.fields if name in values}
    return kind(**{**options, **others})


def choose_sharing(*, share: bool, avoid: bool, exclusive: bool) -> Sharing:
    """Return what to do about CPUs of other runs; at most one of the three options is chosen."""
    chosen = {Sharing.SHARE: share, Sharing.AVOID: avoid, Sharing.EXCLUSIVE: exclusive}
    return next((sharing for sharing, is_chosen in chosen.items() if is_chosen), Sharing.WARN)


class PlanningSettings(Record):
    """What `run`, `exec`, `plan` and `bench` plan from: the values of their options, and the command.

    In a run with groups, each group has these settings. The fields are the options of the same names. `words`
    is the command, `sources` says where values come from, and `configuration` which files were read. The last
    fields are options that not all of these verbs have. Times are in seconds.
    """

    words: tuple[str, ...]
    sources: Sources
    configuration: Configuration
    name: str | None = None

    ranks: int | None
    mask: Mask | None
    strategy: str
    smt: Smt
    sibling: Literal["first", "last"]
    threads: int | None
    processes_per_rank: int
    cores: int | None
    service_cores: int
    service_total: int
    reserve: int
    reserve_total: int
    core_kind: CoreKindName | Literal["all"]
    share: bool
    avoid: bool
    exclusive: bool
    allow_partial: bool
    compat: str | None
    devices: tuple[DeviceKind, ...] | Literal["auto"]
    devices_per_rank: int | None
    share_devices: bool
    near: tuple[str, ...]
    topology: str
    bind: Bind
    proc_bind: ProcBind
    omp_runtime: OmpRuntime | None
    memory: MemoryMode
    strict: bool
    preload: tuple[str, ...]
    expect: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    env_file: tuple[str, ...]
    keep_env: bool
    freeze_threads: bool
    run_id: str | None

    wait: float | None = None
    fill: bool = False
    chdir: str | None = None
    ready: str | None = None
    wrap: tuple[str, ...] | None = None
    quiet: bool = False
    verbose: bool = False


def make_planning_settings(ctx: VerbContext) -> PlanningSettings:
    """Return the planning settings of a command line."""
    return make_settings(PlanningSettings, ctx.params, sources=ctx.sources, configuration=ctx.configuration)


def make_group_settings(ctx: VerbContext) -> tuple[PlanningSettings, ...]:
    """Return the planning settings of each group of a command line; of a run without groups, its own."""
    return tuple(map(make_planning_settings, ctx.groups or (ctx,)))


class ExecSettings(Record):
    """What `exec` needs beside its planning settings; the fields are the options of the same names."""

    planning: PlanningSettings
    rank: int | None
    size: int | None
    local_rank: int | None
    local_size: int | None
    task_prolog: bool
    dry_run: bool


class PlanSettings(Record):
    """What `plan` needs beside its planning settings; the fields are the options of the same names.

    `parts` are the planning settings of the groups, or `planning` alone.
    """

    planning: PlanningSettings
    parts: tuple[PlanningSettings, ...]
    format: str
    rank: int | None
