"""The planning options, which several verbs share, and the request that is made from their values."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal, cast

import click
from click.core import ParameterSource

from ompbind.cli import planning_rules as rules
from ompbind.cli.click_base import at_least, complete_files, count_or, option
from ompbind.compat.table import FRAMEWORKS
from ompbind.errors import RequestError
from ompbind.machine.sources.table import source_labels
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import DISTRIBUTING_WORDS, Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.openmp.variables import OVERRIDING_VARIABLES
from ompbind.planning.assignments import parse_assignment
from ompbind.planning.rank_command import RunSpec
from ompbind.planning.request import DEFAULT_STRATEGY, MemoryMode, Request, Sharing, Smt
from ompbind.planning.strategies.table import STRATEGIES
from ompbind.procfs.reader import read_environ
from ompbind.programs.command_analysis import preload_entries, read_workload
from ompbind.programs.library_catalog import PRELOADABLE
from ompbind.programs.workload import Workload

CPUS = "Choose CPUs"
BINDING = "Bind threads and memory"
RANKS = "Environment of the ranks"
OUTPUT = "Output"
"""The sections of the help to which the options of this module belong, in the order of the help."""


def library_names(text: str) -> tuple[str, ...]:
    """Read comma-separated names or paths of libraries for click."""
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names:
        raise click.BadParameter("the name of a library is missing")
    return names


def _complete_preloads(ctx: click.Context, param: click.Parameter, text: str) -> list[Any]:
    """Complete the last of some comma-separated library names; if no name matches, complete a path."""
    before, comma, last = text.rpartition(",")
    names = [f"{before}{comma}{name}" for name in PRELOADABLE if name.startswith(last)]
    return names if names else complete_files(ctx, param, text)


class PlanningOption:
    """A planning option, which can also be given as OMPBIND_<NAME> in the environment."""

    def __init__(self, section: str, *names: str, **settings: Any) -> None:
        self.section = section
        self.names = names
        self.settings = settings

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        long = next(name for name in self.names if name.startswith("--"))
        return "OMPBIND_" + long[2:].replace("-", "_").upper()

    def make_decorator(self, section: str = "") -> Callable[[Any], Any]:
        """Return the click decorator that adds the option, in its own section or in another."""
        return option(section or self.section, *self.names, envvar=self.variable, **self.settings)


def _mark_default(words: Iterable[str], default: str) -> str:
    """Return the words that an option takes, as its help lists them, with the default marked."""
    return ", ".join(f"{word} (default)" if word == default else word for word in words)


TOPOLOGY = PlanningOption(CPUS, "--topology", metavar="SOURCE", default="live", show_default=True,
                          shell_complete=complete_files, help=f"The machine: {source_labels()}")  # fmt: skip
QUIET = option(OUTPUT, "-q", "--quiet", is_flag=True, help="Print only errors")

_PLANNING_OPTIONS = (
    PlanningOption(CPUS, "-n", "--ranks", type=count_or("auto"), metavar="N|auto", everyday=True,
                   help="Ranks to start (default 1); auto: from strategy or mask"),
    PlanningOption(CPUS, "-m", "--mask", metavar="MASK", everyday=True,
                   help="CPUs to use: '0-7' or 'node:1'; per rank: '0-7|8-15'"),
    PlanningOption(CPUS, "-s", "--strategy", type=click.Choice(list(STRATEGIES)), default=DEFAULT_STRATEGY,
                   metavar="NAME", everyday=True,
                   help=f"Divide CPUs: {_mark_default(STRATEGIES, DEFAULT_STRATEGY)}",
                   rule=rules.check_strategy),
    PlanningOption(CPUS, "--smt", type=count_or("auto", "all"), metavar="auto|K|all", default="auto",
                   everyday=True,
                   help="Hardware threads to use per core; auto (default): 1, or 4 if a core has 8; with a"
                        " mask: all CPUs of the mask",
                   rule=rules.check_smt),
    PlanningOption(CPUS, "--sibling", type=click.Choice(["first", "last"]), default="first",
                   show_default=True, metavar="WHICH",
                   help="Hardware threads of a core to use first: first, last",
                   rule=rules.check_sibling),
    PlanningOption(CPUS, "-t", "--threads", type=at_least(1), metavar="T", everyday=True,
                   help="Threads per rank [default: one per CPU, or CPU quota]"),
    PlanningOption(CPUS, "--reserve", type=at_least(0), metavar="K", default="0", everyday=True,
                   help="Keep K whole cores of each rank free"),
    PlanningOption(CPUS, "--reserve-total", type=at_least(0), metavar="K", default="0",
                   help="Keep K whole cores of the machine free",
                   rule=rules.check_reserve_total),
    PlanningOption(CPUS, "--core-kind", type=click.Choice(["performance", "efficiency", "all"]),
                   default="all", metavar="KIND",
                   help="Cores to use of a hybrid processor: performance, efficiency, all (default)"),
    PlanningOption(CPUS, "--share", is_flag=True,
                   help="Let ranks share CPUs with each other and, without a warning, with other runs",
                   rule=rules.check_sharing("exclusive", "avoid")),
    PlanningOption(CPUS, "--avoid", is_flag=True, help="Use only cores that no other live run uses",
                   rule=rules.check_sharing("exclusive")),
    PlanningOption(CPUS, "--exclusive", is_flag=True,
                   help="Do not start on cores that another live run uses"),
    PlanningOption(CPUS, "--allow-partial", is_flag=True,
                   help="Leave out CPUs of the mask that are not usable, with a warning",
                   rule=rules.check_allow_partial),
    PlanningOption(CPUS, "--compat", type=click.Choice(list(FRAMEWORKS)),
                   help="Use the CPU variables of vLLM or SGLang unless an option overrides them"),
    TOPOLOGY,
    PlanningOption(BINDING, "--bind", type=click.Choice([str(mode) for mode in Bind]), default="rank",
                   metavar="MODE", everyday=True,
                   help="Where threads may run, from the whole rank to one CPU:"
                        f" {_mark_default(Bind, 'rank')}",
                   rule=rules.check_bind),
    PlanningOption(BINDING, "--proc-bind", type=click.Choice([str(policy) for policy in ProcBind]),
                   default="close", metavar="POLICY",
                   help="Distribution of threads over OMP_PLACES, where --bind makes several places:"
                        f" {_mark_default(ProcBind, 'close')}",
                   rule=rules.check_proc_bind),
    PlanningOption(BINDING, "--omp-runtime", type=click.Choice(["auto", *map(str, OmpRuntime)]),
                   default="auto", metavar="NAME",
                   help="OpenMP runtime of the command: auto (default; detected from its files),"
                        f" {', '.join(OmpRuntime)}",
                   rule=rules.check_omp_runtime),
    PlanningOption(BINDING, "--memory", type=click.Choice([str(mode) for mode in MemoryMode]),
                   default="local", metavar="MODE", everyday=True,
                   help="How to use the memory of the rank's NUMA nodes:"
                        f" {_mark_default(MemoryMode, 'local')}"),
    PlanningOption(BINDING, "--strict", is_flag=True,
                   help="Stop with an error if the binding is not possible as requested"),
    PlanningOption(RANKS, "--preload", "preloads", type=library_names, multiple=True, metavar="NAME|PATH",
                   shell_complete=_complete_preloads,
                   help="Put libraries first in LD_PRELOAD: comma-separated names or paths; names are"
                        f" {', '.join(PRELOADABLE)}"),
    PlanningOption(RANKS, "--expect", type=library_names, multiple=True, metavar="NAME|PATH",
                   shell_complete=_complete_preloads,
                   help="Warn unless these libraries are preloaded: comma-separated names or paths"),
)  # fmt: skip

CONSUMED = tuple(planning_option.variable for planning_option in _PLANNING_OPTIONS)
"""The variables of planning options; they are for this run, so its ranks do not inherit them."""

_RANK_OPTIONS = (
    option(RANKS, "--env", "assignments", multiple=True, metavar="NAME=VALUE", everyday=True,
           help="Set a variable; VALUE may use {rank}, {local_rank}, {size}, {cpus}, {run_id}"),
    option(RANKS, "--keep-env", is_flag=True, help="Keep inherited OpenMP and thread variables as they are"),
    option(RANKS, "--freeze-threads", is_flag=True,
           help="In Python, ignore calls to torch.set_num_threads, with a warning"),
    option(RANKS, "--run-id", metavar="TEXT", help="Name of the run [default: from time and pid]"),
)  # fmt: skip


def planning_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options from which a request is made, and the options for the environment of ranks."""
    planned = tuple(planning_option.make_decorator() for planning_option in _PLANNING_OPTIONS)
    return reduce(lambda command, add: add(command), reversed(planned + _RANK_OPTIONS), function)


def make_request(options: Mapping[str, Any], argv: Sequence[str] = ()) -> Request:
    """Make the request from the values of the options; an empty `argv` is no command.

    Raises RequestError for options that contradict each other, MaskError for a mask that cannot be parsed.
    """
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
        user_variables=_user_variables(options),
    )
    return _with_compat(request, options) if options["compat"] else request


def _user_variables(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the binding variables that --env sets and that --keep-env keeps: (name, value) pairs.

    An OMP_PROC_BIND of --env that only distributes threads over the places of the plan is left out.
    """
    assigned = dict(map(parse_assignment, options["assignments"]))
    if assigned.get("OMP_PROC_BIND", "").lower() in DISTRIBUTING_WORDS:
        del assigned["OMP_PROC_BIND"]
    own = {**(os.environ if options["keep_env"] else {}), **assigned}
    return tuple((name, own[name]) for name in OVERRIDING_VARIABLES if name in own)


def _make_workload(options: Mapping[str, Any], argv: Sequence[str]) -> Workload | None:
    """Read what a command would run and preload; None without a command and without preloads."""
    preloads = [name for names in options["preloads"] for name in names]
    expected = [name for names in options["expect"] for name in names]
    env = {**os.environ, **dict(map(parse_assignment, options["assignments"]))}
    if not (argv or preloads or expected or env.get("LD_PRELOAD")):
        return None
    workload = read_workload(argv, env)
    if not (preloads or expected):
        return workload
    from ompbind.programs.preload import (  # late: most commands preload nothing
        find_missing_preloads,
        find_preloads,
    )

    preload = find_preloads(preloads, workload, env) if preloads else ()
    if preload:
        workload = read_workload(argv, {**env, "LD_PRELOAD": ":".join(preload)})
    missing = find_missing_preloads(expected, workload, preload or preload_entries(env))
    return workload.replace(preload=preload, preload_warnings=(*workload.preload_warnings, *missing))


def _with_compat(request: Request, options: Mapping[str, Any]) -> Request:
    """Fill a request from the variables of a framework, where no option is given in any way."""
    from ompbind.compat.reading import fill_request  # late: only --compat needs it

    source = click.get_current_context().get_parameter_source
    given = [name for name in options if source(name) is not ParameterSource.DEFAULT]
    return fill_request(request, options["compat"], os.environ, given)


def _sharing(options: Mapping[str, Any]) -> Sharing:
    """Return which of --share, --avoid and --exclusive is given; their rules allow one of them."""
    return next((sharing for sharing in Sharing if options.get(sharing)), Sharing.WARN)


def make_run_spec(options: Mapping[str, Any], argv: tuple[str, ...], run_id: str) -> RunSpec:
    """Make what all ranks have in common; --run-id overrides `run_id`."""
    hidden, added = _compat_variables(options["compat"])
    return RunSpec(
        argv=argv,
        run_id=options["run_id"] or run_id,
        base=_caller_environment(),
        removed_variables=CONSUMED + hidden,
        added_variables=added + tuple(parse_assignment(text) for text in options["assignments"]),
        keep_env=options["keep_env"],
        freeze_directory=_find_shims() if options["freeze_threads"] else "",
    )


def _find_shims() -> str:
    """Return the directory whose sitecustomize freezes thread counts; nothing is imported from it."""
    directory = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims")
    if ":" in directory:
        hint = "install ompbind in a directory without a colon, or omit --freeze-threads"
        raise RequestError(f"PYTHONPATH cannot contain {directory}", hint=hint)
    return directory


def _compat_variables(family: str | None) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the variables of a framework that ranks do not inherit, and (name, value) of those they get."""
    if family is None:
        return (), ()
    from ompbind.compat.reading import (  # late: only --compat needs it
        find_hidden_variables,
        make_rank_variables,
    )

    return find_hidden_variables(family), make_rank_variables(family)


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
