"""The request for a plan, and what all ranks have in common, made from the settings of a verb."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ompbind.cli import BINDING
from ompbind.cli.options import find_variables
from ompbind.cli.settings import Settings
from ompbind.commands.environment import RunSpec
from ompbind.commands.placeholders import find_unfilled, parse_env_file
from ompbind.commands.rank_command import make_spec_before_plan
from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput
from ompbind.cpuset import join_words
from ompbind.errors import LaunchError, OmpbindError, RequestError
from ompbind.execution.spawn import working_directory
from ompbind.launchers.allocation import read_job_cpus
from ompbind.machine.model import Machine
from ompbind.machine.read.linux import LIVE
from ompbind.machine.read.root import DirectoryRoot
from ompbind.openmp.binding import DISTRIBUTING_WORDS
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.planner import Requests
from ompbind.planning.request import JobCpus, Request
from ompbind.procfs.reader import read_environ
from ompbind.programs.command import Workload, preload_entries, read_wrapped_workload
from ompbind.programs.preload import find_missing_preloads, find_preloads
from ompbind.programs.python_packages import is_installed


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
    request = settings.request.replace(
        visible=visible,
        job_cpus=read_own_job_cpus() if settings.topology == LIVE else None,
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
    given = [name for name in settings.sources.options if settings.sources.is_given(name)]
    return fill_request(request, settings.compat, source, given)


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
    own = {**(os.environ if settings.keep_env else {}), **assigned}
    names: tuple[str, ...] = ("OMP_NUM_THREADS", *OVERRIDING_VARIABLES)
    if settings.request.devices:
        from ompbind.planning.devices.visible import VENDOR_VARIABLES  # noqa: PLC0415 - door: devices

        names = (*names, *VENDOR_VARIABLES)
    return tuple((name, own[name]) for name in names if name in own)


def _explain_unfilled(settings: Settings) -> str:
    """Return what the user should know about placeholders in the command that stay, "" if there are none."""
    if settings.fill or settings.sources.is_given("fill"):  # --no-fill says that all is text
        return ""
    found = dict.fromkeys(shown for word in settings.words for shown in find_unfilled(word))
    if not found:
        return ""
    remedy = "'run --fill' fills placeholders"
    if "fill" in settings.sources.options:
        remedy = "--fill fills placeholders; --no-fill hides this warning"
    return f"{join_words(found)} in the command {'stays' if len(found) == 1 else 'stay'} unfilled ({remedy})"


def _read_preloaded_workload(settings: Settings, spec: RunSpec) -> Workload | None:
    """Read what a rank would run and preload; None without a command and without preloads."""
    preloads, expected = settings.preload, settings.expect
    env = {**os.environ, **dict(spec.added_variables)}
    if not (spec.argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = _read_workload_in_directory(spec, env)
    if not (preloads or expected):
        return workload
    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = _read_workload_in_directory(spec, {**env, "LD_PRELOAD": ":".join(preload)})
    missing = find_missing_preloads(expected, workload, preload or preload_entries(env))
    return workload.replace(preload=preload, preload_warnings=(*workload.preload_warnings, *missing))


def _read_workload_in_directory(spec: RunSpec, env: Mapping[str, str]) -> Workload:
    """Read what a rank would run, from its directory; if that is missing, the start reports it."""
    try:
        with working_directory(spec.chdir):
            return read_wrapped_workload(spec.wrap, spec.argv, env)
    except LaunchError:
        return read_wrapped_workload(spec.wrap, spec.argv, env)


def make_requests(
    parts: Sequence[Settings], spec: RunSpec, machine: Machine, *, for_workers: bool = False
) -> Requests:
    """Make the requests of the groups of a run, or the request of a run without groups, as `make_request`."""
    if not spec.groups:
        return make_request(parts[0], make_spec_before_plan(spec), machine, for_workers=for_workers)
    requests = []
    for part, own in zip(parts, spec.groups, strict=True):
        name = part.name or ""
        try:
            requests.append(make_request(part, make_spec_before_plan(own, group=name), machine))
        except OmpbindError as error:
            raise error.of_group(name) from error.__cause__
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
        from ompbind.compat.reading import (  # noqa: PLC0415 - door: --compat
            find_hidden_variables,
            make_rank_variables,
        )

        hidden, added = find_hidden_variables(settings.compat), make_rank_variables(settings.compat)
    if any(os.environ.get(framework.plugin) for framework in FRAMEWORKS.values() if framework.plugin):
        added += tuple(_pass_on_binding(settings))
    # its sitecustomize freezes thread counts; nothing is imported from it
    shims = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims")
    if settings.freeze_threads and ":" in shims:
        hint = "install ompbind in a directory without a colon, or omit --freeze-threads"
        raise RequestError(f"PYTHONPATH cannot contain {shims}", hint=hint)
    return RunSpec(
        argv=settings.words,
        run_id=settings.run_id or run_id,
        base=_caller_environment(),
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


def _pass_on_binding(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the options of binding as variables, by which a plug-in in a rank binds its workers."""
    sources = settings.sources
    for option in sources.options.values():
        if option.section == BINDING and sources.is_given(option.name):
            value = sources.effective[option.name][-1].value
            if value:
                yield option.variable, "1" if value is True else value


def _caller_environment() -> dict[str, str]:
    """Return the environment that ompbind was started with.

    In the C locale Python sets LC_CTYPE for itself; the kernel still has the environment from before.
    """
    env = dict(os.environ)
    if "LC_CTYPE" in env:
        given = read_environ("self")
        if given is None or (given and "LC_CTYPE" not in given):  # {}: it may not be read
            del env["LC_CTYPE"]
    return env


_MOST_BYTES = 1 << 20
"""Bytes of a file of variables at most; the kernel allows a rank about as many."""


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
