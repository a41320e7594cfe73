"""The settings of a command line: each verb makes one typed record at once from the values of click."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ompbind.cli.option import Sources, VerbContext
from ompbind.errors import OmpbindError
from ompbind.planning.request import Configuration, Request, Sharing
from ompbind.record import Record

if TYPE_CHECKING:
    from ompbind.execution.restarts import RestartPolicy

AnyRecord = TypeVar("AnyRecord", bound=Record)


class Settings(Record):
    """The values of a command line that plans: a request, and the options with the names of the fields.

    `request` has the options about CPUs, devices and binding, `words` are the command, and `sources` says
    where values come from. In a run with groups, `groups` are the settings of each, in the order in which
    they start; `after` is the group that must be ready before its ranks start, "" for none. Options that a
    verb does not have keep the values here. Times are in seconds.
    """

    request: Request
    words: tuple[str, ...]
    sources: Sources
    groups: tuple["Settings", ...] = ()
    after: str = ""
    name: str | None = None

    topology: str
    compat: str | None
    preload: tuple[str, ...]
    expect: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    env_file: tuple[str, ...]
    keep_env: bool
    freeze_threads: bool
    run_id: str | None

    fill: bool = False
    chdir: str | None = None
    wrap: tuple[str, ...] | None = None
    wait: float | None = None
    quiet: bool = False
    verbose: bool = False
    dry_run: bool = False

    ready: str | None = None
    ready_timeout: float = 0.0
    until: str | None = None
    rendezvous: bool = False
    stdin: Literal["first", "none"] = "first"
    output: tuple[str, ...] | None = None
    log_dir: str | None = None
    force: bool = False
    timestamps: bool = False
    pty: bool = False
    on_failure: "str | RestartPolicy" = "stop"
    timeout: float | None = None
    grace: float = 0.0
    keep_descendants: bool = False
    verify: str | None = None
    report: str | None = None

    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    task_prolog: bool = False

    format: str = "table"

    @property
    def parts(self) -> tuple["Settings", ...]:
        """The settings of each group; of a run without groups, its own."""
        return self.groups or (self,)

    @property
    def configuration(self) -> Configuration:
        """Which configuration files were read."""
        return self.request.configuration


def make_settings(kind: type[AnyRecord], values: Mapping[str, Any], **others: Any) -> AnyRecord:
    """Return a record: each field has the value of the option of its name, or the value in `others`."""
    options = {name: values[name] for name in kind.fields if name in values}
    return kind(**{**options, **others})


def make_planning_settings(ctx: VerbContext) -> Settings:
    """Return the settings of a command line; raises RequestError for a request that contradicts itself."""
    groups: list[Settings] = []
    for own in ctx.groups:
        after = (own.table.after if own.table else "") or (groups[-1].name if groups else "")
        try:
            request = _make_request(own)
        except OmpbindError as error:
            raise error.of_group(own.params["name"]) from error.__cause__
        groups.append(make_settings(Settings, own.params, request=request, sources=own.sources, after=after))
    request = groups[0].request if groups else _make_request(ctx)
    return make_settings(Settings, ctx.params, request=request, sources=ctx.sources, groups=tuple(groups))


def _make_request(ctx: VerbContext) -> Request:
    values, sources = ctx.params, ctx.sources
    return make_settings(
        Request,
        values,
        sharing=choose_sharing(share=values["share"], avoid=values["avoid"], exclusive=values["exclusive"]),
        bind_given=sources.is_given("bind") and sources.text("bind") != "",
        compat=None,  # the request gets what its variables say
        configuration=ctx.configuration,
        group=values.get("name") or "",
    )


def choose_sharing(*, share: bool, avoid: bool, exclusive: bool) -> Sharing:
    """Return what to do about CPUs of other runs; at most one of the three options is chosen."""
    chosen = {Sharing.SHARE: share, Sharing.AVOID: avoid, Sharing.EXCLUSIVE: exclusive}
    return next((sharing for sharing, is_chosen in chosen.items() if is_chosen), Sharing.WARN)
