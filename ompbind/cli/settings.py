"""The settings of a command line as one typed record; from this the request and what all ranks share."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ompbind.cli import BINDING
from ompbind.cli.option import Sources, VerbContext
from ompbind.cli.options import find_variables
from ompbind.commands.environment import RunSpec
from ompbind.commands.placeholders import find_unfilled, parse_env_file
from ompbind.commands.rank_command import make_spec_before_plan
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.cpuset import join_words
from ompbind.errors import LaunchError, OmpbindError, RequestError
from ompbind.execution.spawn import working_directory
from ompbind.launchers.allocation import read_job_cpus
from ompbind.launchers.launchers import CPUS_PER_TASK
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.machine.read.root import DirectoryRoot
from ompbind.openmp.binding import DISTRIBUTING_WORDS
from ompbind.openmp.runtimes import WAIT_VARIABLES
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.request import Hold, JobCpus, Request, Requests, Sharing
from ompbind.procfs.reader import read_environ
from ompbind.programs.command import Workload, preload_entries, read_wrapped_workload
from ompbind.programs.preload import find_missing_preloads, find_preloads
from ompbind.programs.python_packages import is_installed
from ompbind.record import Record
from ompbind.text import whole_number

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

    def check_topology(self, what: str) -> None:
        """Raise RequestError if `what` would run although --topology describes another machine."""
        if self.topology != LIVE and not self.dry_run:
            hint = "add --dry-run, or omit --topology"
            raise RequestError(f"--topology: {what} can only run on this machine", hint=hint)


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
        sharing=choose_sharing(values),
        hold=Hold.FIXED if values.get("hold") and ctx.command.name == "exec" else values.get("hold"),
        bind_given=sources.is_given("bind") and sources.text("bind") != "",
        compat=None,  # the request gets what its variables say
        configuration=ctx.configuration,
        group=values.get("name") or "",
    )


def choose_sharing(values: Mapping[str, Any]) -> Sharing:
    """Return what to do about CPUs of other runs; at most one of the three options is chosen."""
    words = (Sharing.SHARE, Sharing.AVOID, Sharing.EXCLUSIVE)
    return next((word for word in words if values[word]), Sharing.WARN)


def make_request(
    settings: Settings, spec: RunSpec, machine: Machine, *, for_workers: bool = False
) -> Request:
    """Complete the request of the settings: with the command, the visible devices, and what --compat reads.

    `spec` is what the first rank, or under a launcher this rank, runs as far as is known before the plan.
    With `for_workers`, the plan is for workers that the framework of --compat starts itself. Raises
    RequestError for options that contradict each other.
    """
    visible = None
    if machine.devices:
        from ompbind.planning.devices.visible import find_visible_devices  # noqa: PLC0415 - door: devices

        visible = find_visible_devices(machine.devices, os.environ)
    requested_cpus = None if settings.sources.is_given("smt") else os.environ.get(CPUS_PER_TASK)
    own, in_pod = settings.request, settings.topology == LIVE and "KUBERNETES_SERVICE_HOST" in os.environ
    is_limited = machine.quota or machine.allowed != machine.online or own.threads or own.cores or own.mask
    request = own.replace(
        visible=visible,
        job_cpus=read_own_job_cpus() if settings.topology == LIVE else None,
        requested_cpus=whole_number(requested_cpus) or 0,
        in_unlimited_pod=in_pod and not is_limited,
        workload=_read_preloaded_workload(settings, spec),
        user_variables=_user_variables(settings, spec),
        unfilled=_explain_unfilled(settings),
    )
    if not settings.compat:
        return request
    from ompbind.compat.reading import fill_request  # noqa: PLC0415 - door: --compat

    env, python = dict(os.environ), request.workload.python if request.workload else ""
    if python and not is_installed("ompbind", python, env):
        env.pop(FRAMEWORKS[settings.compat].plugin, None)  # the server cannot load the plug-in
    source = FrameworkInput(machine=machine, env=env, command=settings.words, for_workers=for_workers)
    return fill_request(request, settings.compat, source, [*settings.sources.effective])


def read_own_job_cpus() -> JobCpus | None:
    """Return how many CPUs of this machine the batch system allows, None if no variable says so."""
    return read_job_cpus(os.environ, DirectoryRoot("/"), os.uname().nodename)


def _user_variables(settings: Settings, spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """Return the variables of binding and devices that --env sets and --keep-env keeps: (name, value) pairs.

    An OMP_PROC_BIND of --env that only distributes threads over the places of the plan is left out.
    """
    assigned = dict(spec.added_variables)
    if assigned.get("OMP_PROC_BIND", "").lower() in DISTRIBUTING_WORDS:
        del assigned["OMP_PROC_BIND"]
    kept = os.environ if settings.keep_env else WAIT_VARIABLES
    own = {**{name: os.environ[name] for name in kept if name in os.environ}, **assigned}
    names: tuple[str, ...] = ("OMP_NUM_THREADS", *WAIT_VARIABLES, *OVERRIDING_VARIABLES)
    if settings.request.devices:
        from ompbind.planning.devices.visible import VENDOR_VARIABLES  # noqa: PLC0415 - door: devices

        names = (*names, *VENDOR_VARIABLES)
    return tuple((name, own[name]) for name in names if name in own)


def _explain_unfilled(settings: Settings) -> str:
    """Return what the user should know about placeholders in the command that stay, "" if there are none."""
    found = dict.fromkeys(shown for word in settings.words for shown in find_unfilled(word))
    if not found or settings.fill or settings.sources.is_given("fill"):  # --no-fill says that all is text
        return ""
    remedy = "'run --fill' fills placeholders"
    if "fill" in settings.sources.options:
        remedy = "--fill fills placeholders; --no-fill hides this warning"
    return f"{join_words(found)} in the command {'stays' if len(found) == 1 else 'stay'} unfilled ({remedy})"


def _read_preloaded_workload(settings: Settings, spec: RunSpec) -> Workload | None:
    """Read what a rank would run and preload; None without a command and without preloads."""
    preloads, expected = settings.preload, settings.expect
    env = {**os.environ, **dict(spec.added_variables)}

    def read(env: Mapping[str, str]) -> Workload:
        """Read what a rank would run, from its directory; if that is missing, the start reports it."""
        try:
            with working_directory(spec.chdir):
                return read_wrapped_workload(spec.wrap, spec.argv, env)
        except LaunchError:
            return read_wrapped_workload(spec.wrap, spec.argv, env)

    if not (spec.argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = read(env)
    if not (preloads or expected):
        return workload
    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = read({**env, "LD_PRELOAD": ":".join(preload)})
    missing = find_missing_preloads(expected, workload, preload or preload_entries(env))
    return workload.replace(preload=preload, preload_warnings=(*workload.preload_warnings, *missing))


def make_requests(
    parts: Sequence[Settings], spec: RunSpec, machine: Machine, *, for_workers: bool = False
) -> Requests:
    """Make the requests of the groups of a run, or the request of a run without groups, as `make_request`."""
    if not spec.groups:
        return make_request(parts[0], make_spec_before_plan(spec), machine, for_workers=for_workers)
    requests = []
    for part, own in zip(parts, spec.groups, strict=True):
        try:
            requests.append(make_request(part, make_spec_before_plan(own, group=own.name), machine))
        except OmpbindError as error:
            raise error.of_group(own.name) from error.__cause__
    return requests


def make_spec_of_run(parts: Sequence[Settings], run_id: str) -> RunSpec:
    """Make what all ranks of a run have in common, with the specifications of its groups."""
    specs = tuple(make_run_spec(part, run_id) for part in parts)
    return specs[0].replace(groups=specs) if parts[0].name else specs[0]


def make_run_spec(settings: Settings, run_id: str) -> RunSpec:
    """Make what the ranks of a group, or of a run without groups, have in common.

    --run-id overrides `run_id`.
    """
    hidden: tuple[str, ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    if settings.compat:
        from ompbind.compat.reading import make_rank_variables  # noqa: PLC0415 - door: --compat

        hidden, added = make_rank_variables(settings.compat, settings.words)
    if any(os.environ.get(framework.plugin) for framework in FRAMEWORKS.values() if framework.plugin):
        # the options of binding as variables, by which a plug-in in a rank binds its workers
        found = settings.sources.effective.items()
        given = ((settings.sources.options[name], occurrences[-1].value) for name, occurrences in found)
        added += tuple(
            (option.variable, "1" if value is True else value)
            for option, value in given
            if value and option.section == BINDING
        )
    base = dict(os.environ)
    if "LC_CTYPE" in base:  # in the C locale Python sets it for itself; the kernel has what was given
        inherited = read_environ("self")
        if inherited is None or (inherited and "LC_CTYPE" not in inherited):  # {}: it may not be read
            del base["LC_CTYPE"]
    # its sitecustomize freezes thread counts; nothing is imported from it
    shims = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims")
    return RunSpec(
        argv=settings.words,
        run_id=settings.run_id or run_id,
        base=base,
        removed_variables=find_variables() + hidden,
        fill_argv=settings.fill,
        wrap=settings.wrap or (),
        chdir=settings.chdir or "",
        ready=(settings.ready or "") if settings.name else "",
        name=settings.name or "",
        added_variables=(*added, *read_env_files(settings.env_file), *settings.env),
        keep_env=settings.keep_env,
        freeze_directory=shims if settings.freeze_threads else "",
    )


_MOST_BYTES = 1 << 20  # of a file of variables; the kernel allows a rank about as many


def read_env_files(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the (NAME, value) pairs of files of variables, in order; raises RequestError or PositionError."""
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except OSError as error:
            hint = "give the path of a file with lines NAME=VALUE"
            raise RequestError(f"cannot read {path}: {error.strerror}", hint=hint) from error
        if len(data) > _MOST_BYTES:
            hint = "write a variable in each line, as NAME=VALUE"
            raise RequestError(f"{path} is larger than 1 MiB", hint=hint)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            message = f"{path}, line {line}: the text is not UTF-8"
            raise RequestError(message, hint="save it as UTF-8") from error
        yield from parse_env_file(text, path, os.environ)
