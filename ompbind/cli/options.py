"""The tables of options that several verbs share: which verbs have them, and how their values are read.

click reads --preset and --config first. Once both are known, the configuration files are read, and
`ctx.default_map` gets the occurrences that they give to each option, the lowest level first. Their keys are
the long options: a new option needs nothing here.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Literal

from ompbind.cli import (
    BINDING,
    CHOOSING,
    CONFIGURATION,
    CPUS,
    DEVICES,
    GROUPS,
    LAUNCHING,
    OUTPUT,
    PLANNING,
    PREFIX,
    RANKS,
    STOPPING,
    readers,
)
from ompbind.cli.config_files import NO_FILES, read_found_files, read_named_file
from ompbind.cli.option import DIRECTORIES, FILES, Option, VerbContext, complete_list, find_settings
from ompbind.commands.placeholders import NAMES, parse_assignment
from ompbind.commands.rank_variables import RANK_VARIABLES
from ompbind.compat.frameworks import FRAMEWORKS
from ompbind.errors import MaskError, OmpbindError, OptionError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import CORE_CHOICES
from ompbind.masks.mask import parse_mask
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.request import DEFAULT_STRATEGY, DEVICE_KINDS, Hold, MemoryMode
from ompbind.planning.strategies import STRATEGIES
from ompbind.programs.libraries import PRELOADABLE
from ompbind.registry.registry import DIRECTORY_VARIABLE
from ompbind.text import suggest_name, whole_number

_DEVICE_WORDS = ("none", "auto", *DEVICE_KINDS, ",".join(DEVICE_KINDS))
MODES = ("inherit", "tag", "files")
STRICT = "strict"

CONTINUE, _RESTART = "continue", "restart"  # values of --on-failure

RUN, EXEC = ("run",), ("exec",)
READING = (*RUN, "plan")  # verbs that take commands from configuration files
GROUPING = (*READING, "bench")  # verbs that take several commands
SUPERVISING = (*RUN, "bench")  # verbs that wait for their ranks
STARTING = (*LAUNCHING, "bench")  # verbs that start ranks


def _complete_sources(text: str) -> Sequence[str]:
    from ompbind.machine.read.sources import complete_source  # noqa: PLC0415 - door: topology sources

    return complete_source(text)


def _list_sources() -> str:
    from ompbind.machine.read.sources import list_sources  # noqa: PLC0415 - door: topology sources

    return list_sources()


def _read_cores(text: str) -> int:
    """Read a number of cores; `taskset -c` has a list of CPUs there."""
    try:
        return readers.at_least(1)(text)
    except OptionError as error:
        if text == "0" or (re.search("[0-9]", text) and whole_number(text) is None):
            with suppress(MaskError):
                parse_mask(text)
                error.hint = f"-c is a number of cores per rank; to name CPUs, write -m {shlex.quote(text)}"
        raise


def _read_wait(text: str) -> float:
    """Read the time limit of --wait; 0 for no limit, also without a value."""
    try:
        return readers.read_seconds(text or "0")
    except OptionError as error:
        raise OptionError(f"{error.message}; before a command write --wait --") from None


def _read_devices(text: str) -> tuple[DeviceKind, ...] | Literal["auto"]:
    """Read the kinds of devices: `none`, `auto`, or one or more kinds in any order."""
    kinds = text.split(",")
    if all(kind in DEVICE_KINDS for kind in kinds):
        return tuple(dict.fromkeys(map(DeviceKind, kinds)))
    word = readers.one_of(_DEVICE_WORDS, "a kind of device")(text)
    return "auto" if word == "auto" else ()


def _read_ready(text: str) -> str:
    """Read when a rank is ready; the text of each rank is checked when its placeholders are filled."""
    from ompbind.commands.ready import check_ready  # noqa: PLC0415 - door: --ready

    check_ready(text)
    return text


def _read_modes(text: str) -> tuple[str, ...]:
    modes = tuple(dict.fromkeys(text.split(",")))
    for mode in modes:
        readers.one_of(MODES)(mode)
    if "inherit" in modes and len(modes) > 1:
        raise OptionError("inherit cannot be combined with other modes")
    return modes


def _read_bare_or(option: str, word: str, text: str) -> str:
    if text in ("", word):
        return text
    forms = f"write {option} or {option}={word}; before a command write {option} --"
    raise OptionError(f"{text!r} is not {word}: {forms}")


def _read_hold(text: str) -> Hold:
    return Hold(_read_bare_or("--hold", Hold.FIXED, text) or Hold.ANSWERED)


def _read_on_failure(text: str) -> Any:
    """Read what happens when a rank fails: a word, or a RestartPolicy, when it starts again."""
    word, colon, limit = text.partition(":")
    if word != _RESTART:
        return readers.one_of(("stop", CONTINUE, _RESTART, f"{_RESTART}:N"))(text)
    from ompbind.execution.restarts import RestartPolicy  # noqa: PLC0415 - door: --on-failure restart

    try:
        return RestartPolicy(limit=readers.at_least(1)(limit) if colon else None)
    except OptionError as error:
        hint = "write restart:N for at most N restarts of each rank, or stop for none"
        raise OptionError(f"{_RESTART}:N: {error.message}", hint=hint) from None


def make_modes(output: tuple[str, ...] | None, log_dir: str | None) -> tuple[str, ...]:
    """Return where output goes: to log files too, if --log-dir is given."""
    modes = output or (("inherit",) if log_dir is None else ("files",))
    return ("tag", "files") if modes == ("tag",) and log_dir is not None else modes


_cpus = partial(Option, section=CPUS, verbs=CHOOSING)
_devices = partial(Option, section=DEVICES, verbs=PLANNING)
_binding = partial(Option, section=BINDING, verbs=PLANNING)
_ranks = partial(Option, section=RANKS, verbs=PLANNING)
_groups = partial(Option, section=GROUPS, verbs=SUPERVISING)
_output = partial(Option, section=OUTPUT, verbs=RUN)
_stopping = partial(Option, section=STOPPING, verbs=RUN)

PLANNING_OPTIONS: tuple[Option, ...] = (
    _cpus("-n", "--ranks", verbs=PLANNING, default="1", number=True, metavar="N|auto", everyday=True,
        own=True, read=readers.count_or("auto"), help="Ranks; auto: from devices, strategy, mask"),
    _cpus("-m", "--mask", read=parse_mask, metavar="MASK", everyday=True,
        help="CPUs to use: '0-7' or 'node:1'; per rank: '0-7|8-15'"),
    _cpus("-s", "--strategy", read=readers.one_of(STRATEGIES, "a strategy"), words=tuple(STRATEGIES),
        default=DEFAULT_STRATEGY, metavar="NAME", everyday=True, help="CPU shares: {words}"),
    _cpus("--smt", read=readers.count_or("auto", "all"), default="auto", words=("auto", "all"), number=True,
        own=True, metavar="auto|K|all", everyday=True,
        help="Hardware threads per core; auto: 1; of 8: 4; of a single core: all; mask: its CPUs"),
    _cpus("--sibling", own=True, words=("first", "last"), default="first", metavar="WHICH",
        help="Hardware threads of a core to use first: {words}"),
    _cpus("-t", "--threads", verbs=PLANNING, read=readers.at_least(1), number=True, metavar="T",
        everyday=True, default_help="one per CPU, or CPU quota", help="Threads per rank"),
    _cpus("--processes-per-rank", verbs=PLANNING, read=readers.at_least(1), default="1", number=True,
        own=True, metavar="W", help="Processes that CMD starts itself; they divide the threads"),
    _cpus("-c", "--cores", read=_read_cores, number=True, metavar="C", everyday=True,
        default_help="a share by strategy", help="Compute cores per rank"),
    _cpus("--service-cores", verbs=PLANNING, read=readers.at_least(0), default="0", number=True, metavar="K",
        own=True, help="Give each rank K whole cores on which no OpenMP worker runs, for its other threads"),
    _cpus("--reserve", read=readers.at_least(0), default="0", number=True, metavar="K", everyday=True,
        own=True, rare_in=("bench",), help="Keep K whole cores of each rank free"),
    _cpus("--reserve-total", own=True, read=readers.at_least(0), default="0", number=True, metavar="K",
        help="Keep K whole cores of the machine free"),
    _cpus("--core-kind", own=True, words=CORE_CHOICES, default="all", metavar="KIND",
        help="Cores to use: {words}; `cache` are those with the most L3 cache each"),
    _cpus("--share", flag=True, spellings="sharing", whole_run=True,
        help="Let ranks share CPUs with each other and, without a warning, with other runs"),
    _cpus("--avoid", flag=True, spellings="sharing", whole_run=True,
        help="Use only cores that no other live run uses"),
    _cpus("--exclusive", flag=True, spellings="sharing", whole_run=True,
        help="Do not start on cores that another live run uses"),
    _cpus("--wait", verbs=LAUNCHING, read=_read_wait, bare="", number=True, whole_run=True, metavar="[=TIME]",
        help="With --avoid or --exclusive, wait until CPUs are free, at most TIME (90, 5m, 1.5h; 0: no "
             "limit), then exit code 125"),
    _cpus("--allow-partial", own=True, flag=True,
        help="Leave out CPUs of the mask that are not usable, with a warning"),
    _cpus("--compat", verbs=PLANNING, words=tuple(FRAMEWORKS),
        help="Choose CPUs as vLLM or SGLang does, by its variables; options override them"),
    _devices("--devices", read=_read_devices, default="none", words=_DEVICE_WORDS, metavar="KINDS",
        help="Give each rank devices, and CPUs near them: {words}; auto: gpu, if each rank can have one"),
    _devices("--devices-per-rank", own=True, read=readers.at_least(1), number=True, metavar="K",
        default_help="an equal share", help="Devices of each kind per rank"),
    _devices("--share-devices", own=True, flag=True, help="Let several ranks use the same device"),
    _devices("--near", read=readers.names_of("a device"), multiple=True, metavar="DEVICE",
        help="Use only CPUs near a device: gpu:0, nic:1, mlx5_0, or a PCI address; see 'ompbind topo'"),
    _cpus("--topology", verbs=(*PLANNING, "topo"), default="live", metavar="SOURCE", whole_run=True,
        complete=_complete_sources, list_names=_list_sources, help="The machine: {names}"),
    _binding("--bind", read=readers.member(Bind), words=tuple(Bind), default="rank", metavar="MODE",
        everyday=True, rare_in=("bench",),
        help="Where threads run on the rank's CPUs: {words} (-m none: on all CPUs)"),
    _binding("--proc-bind", own=True, read=readers.member(ProcBind), words=tuple(ProcBind), default="close",
        metavar="POLICY",
        help="Distribution of threads over OMP_PLACES, where --bind makes several places: {words}"),
    _binding("--omp-runtime", read=readers.member(OmpRuntime, automatic="auto"), words=("auto", *OmpRuntime),
        own=True, default="auto", metavar="NAME",
        help="OpenMP runtime of the command: {words}; auto: detected from its files"),
    _binding("--memory", read=readers.member(MemoryMode), words=tuple(MemoryMode), default="local",
        metavar="MODE", everyday=True, rare_in=("bench",),
        help="How to use the memory of the rank's NUMA nodes: {words}"),
    _binding("--hold", verbs=STARTING, read=_read_hold, bare="", words=(Hold.FIXED,), metavar="[=fixed]",
        whole_run=True, help="Keep threads on the CPUs of their rank, also in programs that bind "
            "themselves; =fixed: no thread can change its CPUs (always so in exec)"),
    _binding("--strict", flag=True, whole_run=True,
        help="Stop with an error if ranks cannot be bound as requested, or if the CPU quota has less than "
             "one CPU for each"),
    _ranks("--preload", read=readers.names_of("a library"), multiple=True, metavar="NAME|PATH",
        complete=complete_list(PRELOADABLE),
        help="Put libraries first in LD_PRELOAD: comma-separated names or paths; names are "
             + ", ".join(PRELOADABLE)),
    _ranks("--expect", read=readers.names_of("a library"), multiple=True, metavar="NAME|PATH",
        complete=complete_list(PRELOADABLE),
        help="Warn unless these libraries are preloaded: comma-separated names or paths"),
    _ranks("--env", read=lambda text: (parse_assignment(text),), multiple=True, metavar="NAME=VALUE",
        everyday=True, rare_in=("bench",),
        help="Set a variable; VALUE may use {rank}, {rank+8000}, ..."),
    _ranks("--env-file", read=lambda text: (readers.name_of("a file")(text),), multiple=True, metavar="FILE",
        complete=FILES,
        help="Set the variables in FILE: lines NAME=VALUE, as for docker; --env overrides them"),
    _ranks("--keep-env", own=True, flag=True, help="Keep inherited OpenMP and thread variables as they are"),
    _ranks("--freeze-threads", own=True, flag=True,
        help="In Python, ignore calls to torch.set_num_threads, with a warning"),
    _ranks("--run-id", read=readers.name_of("a run"), whole_run=True, metavar="TEXT", is_setting=False,
        default_help="from time and pid", help="Name of the run, for stop and inspect"),
)  # fmt: skip

RUNNING_OPTIONS = (
    _groups("--name", verbs=GROUPING, read=readers.read_group_name, metavar="NAME", is_setting=False,
        help="Name a group of ranks; ': OPTIONS --name NAME -- CMD' after its command adds another group"),
    _groups("--group", verbs=READING, read=readers.read_group_names, multiple=True, metavar="NAME|all",
        is_setting=False, whole_run=True,
        help="Use the groups of [group.NAME] of a configuration file, with their commands"),
    _groups("--ready", read=_read_ready, metavar="CHECK",
        help="A rank is ready once tcp:PORT or http:URL answers, text:REGEX is in its output, or exec:CMD "
             "succeeds; CHECK may use {rank+8000}; then the next group starts"),
    _groups("--ready-timeout", read=readers.read_seconds, number=True, metavar="TIME", default="600",
        own=True, help="Stop the run if ranks are not ready after TIME"),
    _groups("--until", read=readers.read_group_name, metavar="NAME", is_setting=False,
        help="Stop the other groups once all ranks of a group have exited; its exit code counts"),
    _ranks("--rendezvous", own=True, verbs=RUN, flag=True, whole_run=True,
        help="Set MASTER_ADDR and a free MASTER_PORT for torch.distributed, equal for all ranks"),
    _ranks("--stdin", verbs=RUN, whole_run=True, words=("first", "none"), default="first", metavar="RANK",
        help="Who reads standard input: {words}; first is rank 0; a rank gets a terminal only if it is the "
             "only rank"),
    _ranks("--rank", verbs=EXEC, read=readers.at_least(0), metavar="R", is_setting=False,
        default_help="--local-rank", help="The rank in the whole job, from 0"),
    _ranks("--size", verbs=EXEC, read=readers.at_least(1), metavar="N", is_setting=False,
        default_help="--local-size", help="The number of ranks of the whole job"),
    _ranks("--local-rank", verbs=EXEC, read=readers.at_least(0), metavar="R", is_setting=False,
        default_help="from the launcher",
        help="The rank on this machine, from 0: start ranks without a launcher"),
    _ranks("--local-size", own=True, verbs=EXEC, read=readers.at_least(1), metavar="N", is_setting=False,
        default_help="from the launcher", help="The number of ranks on this machine"),
    _ranks("--task-prolog", own=True, verbs=EXEC, flag=True, is_setting=False,
        help="In Slurm's TaskProlog: bind the task, print its variables, start nothing"),
    _ranks("--fill", verbs=STARTING, flag=True,
        help="Fill {rank}, {threads} and other placeholders in the command too"),
    _ranks("--chdir", verbs=STARTING, read=readers.name_of("a directory", NAMES), metavar="DIR",
        complete=DIRECTORIES, help="Start ranks in DIR, which may use {rank} and so on"),
    _ranks("--wrap", verbs=STARTING, read=readers.read_wrapper_words, metavar="CMD",
        help="Start ranks as CMD followed by the command: 'perf stat -o perf.{rank}'"),
    _output("--output", read=_read_modes, words=(*MODES, "tag,files"), metavar="MODES", everyday=True,
        help="inherit (default), tag (rank before each line), files"),
    _output("--log-dir", read=readers.name_of("a directory", ["run_id"]), complete=DIRECTORIES, metavar="DIR",
        everyday=True, help="Write DIR/RANK.out, DIR/RANK.err; DIR may use {run_id}"),
    _output("--force", verbs=SUPERVISING, flag=True,
        help="Overwrite log files, and other files than earlier reports (run) or exports (bench)"),
    _output("--timestamps", flag=True, help="With --output tag, add the time to each line"),
    _output("--pty", flag=True,
        help="With --output tag, give ranks a pseudo-terminal, so that they write each line at once"),
    _output("-q", "--quiet", verbs=STARTING, flag=True, help="Print only errors, and results (bench)"),
    _output("-v", "--verbose", verbs=STARTING, flag=True, everyday=True, rare_in=("bench",),
        help="Plan, resource usage (run, bench); line per rank (exec)"),
    _stopping("--on-failure", read=_read_on_failure, whole_run=False, words=("stop", CONTINUE, _RESTART),
        own=True, default="stop", metavar="ACTION", everyday=True, help="If a rank fails: {words}[:N]"),
    _stopping("--timeout", verbs=SUPERVISING, read=readers.read_seconds, number=True, metavar="TIME",
        everyday=True, help="Stop the run after TIME (90, 1h30m; 0: never), code 124"),
    _stopping("--grace", verbs=SUPERVISING, read=readers.read_seconds, number=True, metavar="TIME",
        default="10", help="Time between the steps of stopping: signal, SIGTERM, SIGKILL"),
    _stopping("--keep-descendants", own=True, flag=True,
        help="Do not kill daemons of a finished rank that have left its process group"),
    _stopping("--verify", read=partial(_read_bare_or, "--verify", STRICT), bare="", words=(STRICT,),
        metavar="[=strict]", everyday=True, own=True,
        help="Check threads during the run; =strict: stop on an error"),
    _stopping("--report", read=readers.name_of("a file", ["run_id"]), complete=FILES, metavar="FILE",
        everyday=True, help="Write plan, exit codes and resource usage as JSON"),
    _stopping("--dry-run", verbs=STARTING, flag=True, everyday=True,
        help="Show the plan, or candidates (bench), and start nothing"),
)  # fmt: skip


def find_options(verb: str) -> tuple[Option, ...]:
    """Return the options of a verb, in the order of the help.

    Options of one verb alone are `OPTIONS` of its module, which defines them before its `VERB`.
    """
    rows = LAUNCH_OPTIONS
    if verb not in (*LAUNCHING, "bench"):
        rows += getattr(import_module(f"ompbind.cli.{verb}"), "OPTIONS", ())
    if verb == "bench":
        rows = (*import_module("ompbind.bench.options").BENCH_OPTIONS, *rows)
    shown = LAUNCH_OPTIONS if verb == "config" else ()  # it shows the values of these
    return tuple(option for option in rows if verb in option.verbs or option in shown)


def find_keys() -> Mapping[str, Option]:
    """Return the options that configuration files can contain, by key: options of all verbs."""
    return find_settings(option for verb in PLANNING for option in find_options(verb))


def _load_files(ctx: VerbContext, option: Option, value: str | None) -> str | None:
    """Read the files and the preset, once --config and --preset are both known; raises ConfigurationError."""
    values = {**ctx.params, option.name: value}
    if not {"config", "preset"} <= values.keys():
        return value
    path, preset = values["config"], values["preset"]
    try:
        if path:
            found = read_named_file(path, ctx.sources.place("config"))
        else:
            found = NO_FILES if ctx.sources.is_given("config") else read_found_files(os.environ)
        if found != NO_FILES or preset:
            from ompbind.cli.config_defaults import set_defaults  # noqa: PLC0415 - door: configuration files

            set_defaults(ctx, found, preset, find_keys)
    except OmpbindError:
        if not ctx.resilient_parsing:
            raise
    return value


def _complete_presets(text: str) -> tuple[str, ...]:
    from ompbind.cli.config_defaults import list_preset_names  # noqa: PLC0415 - door: configuration files

    path = os.environ.get(f"{PREFIX}CONFIG", "")
    try:
        return list_preset_names(read_named_file(path, "") if path else read_found_files(os.environ))
    except OmpbindError:
        return ()


LAUNCH_OPTIONS = (
    *PLANNING_OPTIONS,
    Option("--preset", section=CONFIGURATION, verbs=PLANNING, read=readers.name_of("a preset"),
           metavar="NAME", complete=_complete_presets, callback=_load_files, whole_run=False,
           help="Use the options of [preset.NAME] of a configuration file"),
    Option("--config", section=CONFIGURATION, verbs=PLANNING, read=readers.name_of("a file"), metavar="FILE",
           complete=FILES, callback=_load_files,
           help="Read only this configuration file; --no-config reads none",
           default_help="ompbind.toml of the working directory and of the user"),
    *RUNNING_OPTIONS,
)  # fmt: skip
"""The options of verbs that start ranks, in the order of the help; `plan` has some of them."""


def find_variables() -> tuple[str, ...]:
    """Return the variables of options: they are for this run, so its ranks do not inherit them."""
    return tuple(option.variable for option in LAUNCH_OPTIONS if option.has_variable)


def find_unknown_variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that ompbind does not know, and a hint: what to use instead, "" for nothing."""
    plugins = {framework.plugin for framework in FRAMEWORKS.values()}
    usual = {*find_variables(), *RANK_VARIABLES, *plugins, DIRECTORY_VARIABLE}
    unusual = [name for name in sorted(env) if name.startswith(PREFIX) and env[name] and name not in usual]
    if not unusual:
        return
    known = {option.variable for verb in PLANNING for option in find_options(verb)} - {""}
    endings = [name.removeprefix(PREFIX) for name in sorted({*known, *plugins - {""}, DIRECTORY_VARIABLE})]
    for name in unusual:
        if name not in known:
            similar = suggest_name(name.removeprefix(PREFIX), endings)
            yield name, similar and f"did you mean {PREFIX}{similar}?"
