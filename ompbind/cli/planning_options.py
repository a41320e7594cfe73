"""The options that verbs share, with the same words everywhere, and what they make of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal, cast

import click
from click.core import ParameterSource

from ompbind.cli.click_base import option
from ompbind.compat.table import FRAMEWORKS
from ompbind.errors import RequestError
from ompbind.machine.sources.table import labels
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.openmp.variables import DEFEATING
from ompbind.planning.rank_command import Job, parse_assignment
from ompbind.planning.request import DEFAULT_STRATEGY, MemoryMode, Request, Sharing, Smt
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.procfs.reader import read_variables
from ompbind.programs.command_analysis import preload_entries, read_workload
from ompbind.programs.library_catalog import PRELOADABLE
from ompbind.programs.workload import Workload

PLANNING = "Planning options"
RANKS = "Options for the ranks"
RUNNING = "Running options"


def count_or(*words: str) -> Callable[[str], int | str]:
    """Return a converter for click: a number from 1 on, or one of some words."""

    def convert(text: str) -> int | str:
        if text in words:
            return text
        if text.isascii() and text.isdigit() and int(text) >= 1:
            return int(text)
        raise click.BadParameter(f"{text!r} is not {', '.join(words)} or a number from 1 on")

    return convert


def seconds(text: str) -> float:
    """Read a time for click as `timeout` and `sleep` do: a number, or one with s, m, h or d behind it."""
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    number = text[:-1] if unit else text
    whole, _, part = number.partition(".")
    if not (whole + part).isdigit() or not number.isascii() or len(number) > 12:
        raise click.BadParameter(f"{text!r} is not a time: write seconds, or for example 1.5h")
    return float(number) * (unit or 1)


def complete_files(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
    """Have the shell complete the names of files."""
    from click.shell_completion import CompletionItem  # late: only a Tab key needs it

    return [CompletionItem(text, type="file")]


def library_names(text: str) -> tuple[str, ...]:
    """Read names or paths of libraries for click, which commas separate."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names:
        raise click.BadParameter("the name of a library is missing")
    return names


def _complete_preloads(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
    """Complete the last of some names of libraries; where none fits, it may be a path."""
    before, comma, last = text.rpartition(",")
    names = [f"{before}{comma}{name}" for name in PRELOADABLE if name.startswith(last)]
    return names if names else complete_files(ctx, param, text)


class Planned:
    """A planning option, which can also be given as OMPBIND_<NAME> in the environment."""

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings

    @property
    def variable(self) -> str:
        """The name of its variable in the environment."""
        long = next(name for name in self.names if name.startswith("--"))
        return "OMPBIND_" + long[2:].replace("-", "_").upper()

    def under(self, section: str) -> Callable[[Any], Any]:
        """Return the click decorator that adds the option under a section of --help."""
        return option(section, *self.names, envvar=self.variable, **self.settings)


TOPOLOGY = Planned("--topology", metavar="SOURCE", default="live", show_default=True,
                   shell_complete=complete_files, help=f"The machine: {labels()}")  # fmt: skip
QUIET = option(RUNNING, "-q", "--quiet", is_flag=True, help="Say nothing but errors.")

_PLANNING_OPTIONS = (
    Planned("-n", "--ranks", type=count_or("auto"), metavar="N|auto",
              help="How many ranks; auto asks the strategy, or the mask.  [default: 1]"),
    Planned("-m", "--mask", metavar="MASK",
              help="CPUs to use, '|' between ranks: '0-3', '0-7|8-15', 'node:1', 'all,^0'."),
    Planned("-s", "--strategy", type=click.Choice(list(STRATEGIES)), default=DEFAULT_STRATEGY,
              show_default=True, metavar="NAME",
              help=f"How to divide the CPUs: {', '.join(STRATEGIES)}."),
    Planned("--smt", type=count_or("auto", "all"), metavar="auto|K|all", default="auto",
              show_default=True,
              help="Hardware threads used per core; auto is 1, or 4 on SMT8, and never prunes a mask."),
    Planned("--sibling", type=click.Choice(["first", "last"]), default="first",
              show_default=True,
              help="Which hardware threads of a core to use first."),
    Planned("-t", "--threads", type=click.IntRange(min=1), metavar="T",
              help="Threads per rank [default: its CPUs, within the cgroup quota]."),
    Planned("--reserve", type=click.IntRange(min=0), metavar="K", default=0,
              help="Whole cores of each rank's share to keep free."),
    Planned("--reserve-total", type=click.IntRange(min=0), metavar="K", default=0,
              help="Whole cores of the machine to keep free."),
    Planned("--bind", type=click.Choice([str(one) for one in Bind]), default="rank",
              show_default=True, metavar="MODE",
              help="How OpenMP threads are bound: rank, core, thread, exact, none."),
    Planned("--proc-bind", type=click.Choice([str(one) for one in ProcBind]), default="close",
              show_default=True,
              help="How threads take their places, where --bind gives several."),
    Planned("--omp-runtime", type=click.Choice(["auto", *map(str, OmpRuntime)]), default="auto",
              show_default=True, metavar="NAME",
              help=f"The OpenMP runtime of the command: auto (its files tell), {', '.join(OmpRuntime)}."),
    Planned("--preload", "preloads", type=library_names, multiple=True, metavar="NAME|PATH",
             shell_complete=_complete_preloads,
             help=f"Put a library first in LD_PRELOAD: {', '.join(PRELOADABLE)}, or a path; also several."),
    Planned("--expect", type=library_names, multiple=True, metavar="NAME|PATH",
             shell_complete=_complete_preloads,
             help="Warn unless these libraries are preloaded, names or paths, as in tcmalloc,iomp."),
    Planned("--memory", type=click.Choice([str(one) for one in MemoryMode]), default="local",
              show_default=True, metavar="MODE",
              help="Where memory comes from: local (as the kernel does); bind, preferred, interleave:"
              " the NUMA nodes of the rank's CPUs."),
    Planned("--core-kind", type=click.Choice(["performance", "efficiency", "all"]), default="all",
              show_default=True, metavar="KIND",
              help="Cores to use of a hybrid processor: performance, efficiency, all."),
    Planned("--share", is_flag=True,
              help="Let ranks share CPUs, and use those of other runs without a warning."),
    Planned("--avoid", is_flag=True, help="Plan on the cores that no other live run uses."),
    Planned("--exclusive", is_flag=True, help="Refuse to start on cores that another live run uses."),
    Planned("--allow-partial", is_flag=True,
              help="Drop CPUs of the mask that cannot be used, with a warning."),
    Planned("--strict", is_flag=True, help="Make everything that cannot be bound as asked an error."),
    Planned("--compat", type=click.Choice(list(FRAMEWORKS)),
              help="Read that program's own CPU variables where no option says otherwise."),
    TOPOLOGY,
)  # fmt: skip

CONSUMED = tuple(one.variable for one in _PLANNING_OPTIONS)
"""The variables by which planning options can be given; they are for this run, not for what ranks start."""

_RANK_OPTIONS = (
    option(RANKS, "--env", "assignments", multiple=True, metavar="NAME=VALUE",
           help="Set a variable; {rank} {local_rank} {size} {cpus} {run_id} are filled in."),
    option(RANKS, "--keep-env", is_flag=True,
           help="Leave inherited OpenMP and thread variables as they are."),
    option(RANKS, "--freeze-threads", is_flag=True,
           help="In Python: a warning instead of what torch.set_num_threads would change."),
    option(RANKS, "--run-id", metavar="TEXT", help="The name of the run [default: made from time and pid]."),
)  # fmt: skip


def planning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of which a placement request is made, and those for a rank's environment."""
    planned = tuple(one.under(PLANNING) for one in _PLANNING_OPTIONS)
    return reduce(lambda made, add: add(made), reversed(planned + _RANK_OPTIONS), function)


def make_request(options: Mapping[str, Any], argv: Sequence[str] = ()) -> Request:
    """Make the placement request that the options ask for, for a command where one is given."""
    ranks = options["ranks"]
    request = Request(
        ranks=None if ranks == "auto" else ranks or 1,
        mask=parse_mask(options["mask"]) if options["mask"] is not None else None,
        strategy=options["strategy"],
        smt=cast(Smt, options["smt"]),
        sibling=cast(Literal["first", "last"], options["sibling"]),
        threads=options["threads"],
        reserve=options["reserve"],
        reserve_total=options["reserve_total"],
        bind=Bind(options["bind"]),
        proc_bind=ProcBind(options["proc_bind"]),
        memory=MemoryMode(options["memory"]),
        core_kind=options["core_kind"],
        sharing=_sharing(options),
        allow_partial=options["allow_partial"],
        strict=options["strict"],
        omp_runtime=None if options["omp_runtime"] == "auto" else OmpRuntime(options["omp_runtime"]),
        workload=_make_workload(options, argv),
        own_variables=_own_variables(options),
    )
    return _with_compat(request, options) if options["compat"] else request


def _own_variables(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the variables of OpenMP that --env sets, and --keep-env leaves.

    A way to take places that --env names is one of the plan's places.
    """
    said = dict(map(parse_assignment, options["assignments"]))
    if said.get("OMP_PROC_BIND", "").lower() in ("true", *(str(one) for one in ProcBind)):
        del said["OMP_PROC_BIND"]
    own = {**(os.environ if options["keep_env"] else {}), **said}
    return tuple((name, own[name]) for name in DEFEATING if name in own)


def _make_workload(options: Mapping[str, Any], argv: Sequence[str]) -> Workload | None:
    """Read what a command would run with what is to be preloaded; None where neither is given."""
    preloads = [name for names in options["preloads"] for name in names]
    expected = [name for names in options["expect"] for name in names]
    env = {**os.environ, **dict(map(parse_assignment, options["assignments"]))}
    if not (argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = read_workload(argv, env)
    if not (preloads or expected):
        return workload
    from ompbind.programs.preload import find_missing, find_preloads  # late: most commands preload nothing

    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = read_workload(argv, {**env, "LD_PRELOAD": ":".join(preload)})
    troubles = (*workload.troubles, *find_missing(expected, workload, preload or preload_entries(env)))
    return workload.replace(preload=preload, troubles=troubles)


def _with_compat(request: Request, options: Mapping[str, Any]) -> Request:
    """Fill what no option says, on the command line, in a variable or a default map, as a framework says."""
    from ompbind.compat.reading import fill_request  # late: only those who ask for it need it

    source = click.get_current_context().get_parameter_source
    given = [name for name in options if source(name) is not ParameterSource.DEFAULT]
    return fill_request(request, options["compat"], os.environ, given)


def _sharing(options: Mapping[str, Any]) -> Sharing:
    """Return the one of --share, --avoid and --exclusive that is given; the environment comes second."""
    given = [one for one in Sharing if options.get(one)]
    context = click.get_current_context(silent=True)
    if context:
        words = [one for one in given if context.get_parameter_source(one) is ParameterSource.COMMANDLINE]
        given = words or given
    if len(given) > 1:
        told = " and ".join(f"--{one}" for one in given)
        raise click.UsageError(f"{told} contradict each other", context)
    return given[0] if given else Sharing.WARN


def make_job(options: Mapping[str, Any], argv: tuple[str, ...], run_id: str) -> Job:
    """Make what all ranks have in common; an option for the run's name beats `run_id`."""
    lost, found = _compat_variables(options["compat"])
    return Job(
        argv=argv,
        run_id=options["run_id"] or run_id,
        base=_caller_environment(),
        consumed=CONSUMED + lost,
        extra=found + tuple(parse_assignment(text) for text in options["assignments"]),
        keep=options["keep_env"],
        freeze=_find_freezer() if options["freeze_threads"] else "",
    )


def _find_freezer() -> str:
    """Return the folder whose sitecustomize freezes thread counts; nothing is imported from it."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims")
    if ":" in folder:
        hint = "install ompbind in a folder without a colon, or leave --freeze-threads out"
        raise RequestError(f"PYTHONPATH cannot name {folder}", hint=hint)
    return folder


def _compat_variables(family: str | None) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the variables that ranks lose and those that they find for the sake of a framework."""
    if family is None:
        return (), ()
    from ompbind.compat.reading import ranks_find, ranks_lose  # late: only those who ask for it need it

    return ranks_lose(family), ranks_find(family)


def _caller_environment() -> dict[str, str]:
    """Return the environment that ompbind was started with.

    Python sets LC_CTYPE for itself where the locale is C; the kernel still knows what was there before.
    """
    env = dict(os.environ)
    if "LC_CTYPE" in env:
        given = read_variables("self")
        if given is None or (given and "LC_CTYPE" not in given):  # {} is what may not be read
            del env["LC_CTYPE"]
    return env
