"""The planning options, which several verbs share: which CPUs ranks get, and what their environment is."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from ompbind.cli.option import FILES, Option, complete_list
from ompbind.cli.readers import (
    at_least,
    count_or,
    member,
    name_of,
    names_of,
    one_of,
    read_file_names,
    read_ranks,
    read_seconds,
)
from ompbind.cli.verbs import BINDING, CHOOSING, CPUS, DEVICES, LAUNCHING, PLANNING, RANKS
from ompbind.compat.frameworks import FRAMEWORKS
from ompbind.errors import MaskError, OptionError
from ompbind.machine.devices import DeviceKind
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.placeholders import parse_assignment
from ompbind.planning.request import DEFAULT_STRATEGY, DEVICE_KINDS, MemoryMode
from ompbind.planning.strategies import STRATEGIES
from ompbind.programs.libraries import PRELOADABLE

_KINDS = ("performance", "efficiency", "all")


def _complete_sources(text: str) -> Sequence[str]:
    """Complete a topology source."""
    from ompbind.machine.read.sources import complete_source  # noqa: PLC0415 - door: topology sources

    return complete_source(text)


def _list_sources() -> str:
    """Return the short names of all topology sources."""
    from ompbind.machine.read.sources import LABELS  # noqa: PLC0415 - door: topology sources

    return LABELS


def _read_cores(text: str) -> int:
    """Read a number of cores; `taskset -c` has a list of CPUs there."""
    try:
        return at_least(1)(text)
    except OptionError as error:
        if text == "0" or (any(map(str.isdigit, text)) and not text.isdigit()):
            with suppress(MaskError):
                parse_mask(text)
                error.hint = f"-c is a number of cores per rank; to name CPUs, write -m {shlex.quote(text)}"
        raise


def _read_wait(text: str) -> float:
    """Read the time limit of --wait; 0 for no limit, also without a value."""
    try:
        return read_seconds(text or "0")
    except OptionError as error:
        raise OptionError(f"{error.message}; before a command write --wait --") from None


_DEVICE_WORDS = ("none", "auto", *DEVICE_KINDS, ",".join(DEVICE_KINDS))


def _read_devices(text: str) -> tuple[DeviceKind, ...] | Literal["auto"]:
    """Read the kinds of devices: `none`, `auto`, or one or more kinds in any order."""
    kinds = text.split(",")
    if all(kind in DEVICE_KINDS for kind in kinds):
        return tuple(dict.fromkeys(map(DeviceKind, kinds)))
    word = one_of(_DEVICE_WORDS, "a kind of device")(text)
    return "auto" if word == "auto" else ()


PLANNING_OPTIONS: tuple[Option, ...] = (
    Option("-n", "--ranks", section=CPUS, verbs=PLANNING, read=read_ranks, default="1", number=True,
           metavar="N|auto", everyday=True, help="Ranks; auto: from devices, strategy, mask"),
    Option("-m", "--mask", section=CPUS, verbs=CHOOSING, read=parse_mask, metavar="MASK",
           everyday=True, help="CPUs to use: '0-7' or 'node:1'; per rank: '0-7|8-15'"),
    Option("-s", "--strategy", section=CPUS, verbs=CHOOSING, read=one_of(STRATEGIES, "a strategy"),
           words=tuple(STRATEGIES), default=DEFAULT_STRATEGY, metavar="NAME", everyday=True,
           help="CPU shares: {words}"),
    Option("--smt", section=CPUS, verbs=CHOOSING, read=count_or("auto", "all"), default="auto",
           words=("auto", "all"), number=True, metavar="auto|K|all", everyday=True,
           help="Hardware threads per core; auto: 1, or 4 if a core has 8; with a mask: its CPUs"),
    Option("--sibling", section=CPUS, verbs=CHOOSING, read=one_of(("first", "last")),
           words=("first", "last"), default="first", metavar="WHICH",
           help="Hardware threads of a core to use first: {words}"),
    Option("-t", "--threads", section=CPUS, verbs=PLANNING, read=at_least(1), number=True,
           metavar="T", everyday=True, help="Threads per rank",
           default_help="one per CPU, or CPU quota"),
    Option("--processes-per-rank", section=CPUS, verbs=PLANNING, read=at_least(1), default="1", number=True,
           metavar="W", help="Processes that CMD starts itself; they divide the threads"),
    Option("-c", "--cores", section=CPUS, verbs=CHOOSING, read=_read_cores, number=True, metavar="C",
           everyday=True, help="Compute cores per rank",
           default_help="a share by strategy"),
    Option("--service-cores", section=CPUS, verbs=PLANNING, read=at_least(0), default="0",
           number=True, metavar="K",
           help="Give each rank K whole cores on which no OpenMP worker runs, for its other threads"),
    Option("--service-total", section=CPUS, verbs=PLANNING, read=at_least(0), default="0",
           number=True, metavar="K",
           help="Use K CPUs of all ranks together not for OpenMP workers, but for other threads of the"
                " ranks"),
    Option("--reserve", section=CPUS, verbs=CHOOSING, read=at_least(0), default="0", number=True,
           metavar="K", everyday=True, rare_in=("bench",), help="Keep K whole cores of each rank free"),
    Option("--reserve-total", section=CPUS, verbs=CHOOSING, read=at_least(0), default="0",
           number=True, metavar="K", help="Keep K whole cores of the machine free"),
    Option("--core-kind", section=CPUS, verbs=CHOOSING, read=one_of(_KINDS), words=_KINDS,
           default="all", metavar="KIND", help="Cores to use of a hybrid processor: {words}"),
    Option("--share", section=CPUS, verbs=CHOOSING, flag=True, spellings="sharing", whole_run=True,
           help="Let ranks share CPUs with each other and, without a warning, with other runs"),
    Option("--avoid", section=CPUS, verbs=CHOOSING, flag=True, spellings="sharing", whole_run=True,
           help="Use only cores that no other live run uses"),
    Option("--exclusive", section=CPUS, verbs=CHOOSING, flag=True, spellings="sharing", whole_run=True,
           help="Do not start on cores that another live run uses"),
    Option("--wait", section=CPUS, verbs=LAUNCHING, read=_read_wait, bare="", number=True, whole_run=True,
           metavar="[=TIME]",
           help="With --avoid or --exclusive, wait until CPUs are free, at most TIME (90, 5m, 1.5h; 0: no"
                " limit), then exit code 125"),
    Option("--allow-partial", section=CPUS, verbs=CHOOSING, flag=True,
           help="Leave out CPUs of the mask that are not usable, with a warning"),
    Option("--compat", section=CPUS, verbs=PLANNING, read=one_of(FRAMEWORKS),
           words=tuple(FRAMEWORKS),
           help="Choose CPUs as vLLM or SGLang does, by its variables; options override them"),
    Option("--devices", section=DEVICES, verbs=PLANNING, read=_read_devices, default="none",
           words=_DEVICE_WORDS, metavar="KINDS",
           help="Give each rank devices, and CPUs near them: {words}; auto: gpu, if each rank can have one"),
    Option("--devices-per-rank", section=DEVICES, verbs=PLANNING, read=at_least(1), number=True,
           metavar="K", help="Devices of each kind per rank", default_help="an equal share"),
    Option("--share-devices", section=DEVICES, verbs=PLANNING, flag=True,
           help="Let several ranks use the same device"),
    Option("--near", section=DEVICES, verbs=PLANNING, read=names_of("a device"),
           multiple=True, metavar="DEVICE",
           help="Use only CPUs near a device: gpu:0, nic:1, mlx5_0, or a PCI address; see 'ompbind topo'"),
    Option("--topology", section=CPUS, verbs=(*PLANNING, "topo"), default="live", metavar="SOURCE",
           whole_run=True, complete=_complete_sources, help="The machine: {names}", list_names=_list_sources),
    Option("--bind", section=BINDING, verbs=PLANNING, read=member(Bind), words=tuple(Bind),
           default="rank", metavar="MODE", everyday=True, rare_in=("bench",),
           help="Where threads run on the rank's CPUs: {words} (-m none: on all CPUs)"),
    Option("--proc-bind", section=BINDING, verbs=PLANNING, read=member(ProcBind),
           words=tuple(ProcBind), default="close", metavar="POLICY",
           help="Distribution of threads over OMP_PLACES, where --bind makes several places: {words}"),
    Option("--omp-runtime", section=BINDING, verbs=PLANNING,
           read=member(OmpRuntime, automatic="auto"), words=("auto", *OmpRuntime), default="auto",
           metavar="NAME", help="OpenMP runtime of the command: {words}; auto: detected from its files"),
    Option("--memory", section=BINDING, verbs=PLANNING, read=member(MemoryMode),
           words=tuple(MemoryMode), default="local", metavar="MODE", everyday=True, rare_in=("bench",),
           help="How to use the memory of the rank's NUMA nodes: {words}"),
    Option("--strict", section=BINDING, verbs=PLANNING, flag=True, whole_run=True,
           help="Stop with an error if ranks cannot be bound as requested, or if the CPU quota "
                "has less than one CPU for each"),
    Option("--preload", section=RANKS, verbs=PLANNING, read=names_of("a library"), multiple=True,
           metavar="NAME|PATH", complete=complete_list(PRELOADABLE),
           list_names=lambda: ", ".join(PRELOADABLE),
           help="Put libraries first in LD_PRELOAD: comma-separated names or paths; names are {names}"),
    Option("--expect", section=RANKS, verbs=PLANNING, read=names_of("a library"), multiple=True,
           metavar="NAME|PATH", complete=complete_list(PRELOADABLE),
           help="Warn unless these libraries are preloaded: comma-separated names or paths"),
    Option("--env", section=RANKS, verbs=PLANNING, read=lambda text: (parse_assignment(text),),
           multiple=True, metavar="NAME=VALUE", everyday=True, rare_in=("bench",),
           help="Set a variable; VALUE may use {rank}, {rank+8000}, {local_rank}, {size}, {cpus}, {threads}, "
                "{run_id}"),
    Option("--env-file", section=RANKS, verbs=PLANNING, read=read_file_names, multiple=True,
           metavar="FILE", complete=FILES,
           help="Set the variables in FILE: lines NAME=VALUE, as for docker; --env overrides them"),
    Option("--keep-env", section=RANKS, verbs=PLANNING, flag=True,
           help="Keep inherited OpenMP and thread variables as they are"),
    Option("--freeze-threads", section=RANKS, verbs=PLANNING, flag=True,
           help="In Python, ignore calls to torch.set_num_threads, with a warning"),
    Option("--run-id", section=RANKS, verbs=PLANNING, read=name_of("a run"), whole_run=True,
           metavar="TEXT", is_setting=False, help="Name of the run", default_help="from time and pid"),
)  # fmt: skip
