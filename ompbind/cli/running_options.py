"""The options of `run` for starting and supervising ranks; `exec` has a few of them too."""

from typing import Any

from ompbind.cli.option import DIRECTORIES, FILES, Option
from ompbind.cli.readers import (
    ALL_GROUPS,
    at_least,
    one_of,
    read_directory,
    read_group_name,
    read_path,
    read_seconds,
    read_wrapper_words,
)
from ompbind.cli.verbs import GROUPS, LAUNCHING, OUTPUT, RANKS, STOPPING
from ompbind.errors import OptionError

MODES = ("inherit", "tag", "files")


def make_modes(output: tuple[str, ...] | None, log_dir: str | None) -> tuple[str, ...]:
    """Return where output goes: without --output, to the log files of --log-dir if there are any."""
    return output or (("inherit",) if log_dir is None else ("files",))


STRICT = "strict"

CONTINUE, _RESTART = "continue", "restart"
"""Values of --on-failure."""

RUN = ("run",)
EXEC = ("exec",)
READING = (*RUN, "plan")
"""The verbs that take commands from configuration files."""

GROUPING = (*READING, "bench")
"""The verbs that take several commands."""

SUPERVISING = (*RUN, "bench")
"""The verbs that wait for their ranks."""

STARTING = (*LAUNCHING, "bench")
"""The verbs that start ranks."""


def _read_group_names(text: str) -> tuple[str, ...]:
    """Read the names of groups of a configuration file, "all" for all."""
    return tuple(name if name == ALL_GROUPS else read_group_name(name) for name in text.split(","))


def _read_ready(text: str) -> str:
    """Read when a rank is ready; the text of each rank is checked when its placeholders are filled."""
    from ompbind.execution.readiness import check_ready  # noqa: PLC0415 - door: --ready

    check_ready(text)
    return text


def _read_modes(text: str) -> tuple[str, ...]:
    """Read the modes of --output: one mode, or tag and files together."""
    modes = tuple(dict.fromkeys(text.split(",")))
    for mode in modes:
        one_of(MODES)(mode)
    if "inherit" in modes and len(modes) > 1:
        raise OptionError("inherit cannot be combined with other modes")
    return modes


def _read_verify(text: str) -> str:
    """Read the optional value of --verify; "" where none is given."""
    if text in ("", STRICT):
        return text
    forms = f"write --verify or --verify={STRICT}; before a command write --verify --"
    raise OptionError(f"{text!r} is not {STRICT}: {forms}")


def _read_on_failure(text: str) -> Any:
    """Read what happens when a rank fails: a word, or a RestartPolicy, when it starts again."""
    word, colon, limit = text.partition(":")
    if word != _RESTART:
        return one_of(("stop", CONTINUE, _RESTART, f"{_RESTART}:N"))(text)
    from ompbind.execution.restarts import RestartPolicy  # noqa: PLC0415 - door: --on-failure restart

    try:
        return RestartPolicy(limit=at_least(1)(limit) if colon else None)
    except OptionError as error:
        hint = "write restart:N for at most N restarts of each rank, or stop for none"
        raise OptionError(f"{_RESTART}:N: {error.message}", hint=hint) from None


def _read_log_directory(text: str) -> str:
    if not text:
        raise OptionError("the name of a directory is missing")
    return read_path(text)


RUNNING_OPTIONS = (
    Option("--name", section=GROUPS, verbs=GROUPING, read=read_group_name, metavar="NAME",
           is_setting=False,
           help="Name a group of ranks; ': OPTIONS --name NAME -- CMD' after its command adds another group"),
    Option("--group", section=GROUPS, verbs=READING, read=_read_group_names, multiple=True,
           metavar="NAME|all", is_setting=False, whole_run=True,
           help="Use the groups of [group.NAME] of a configuration file, with their commands"),
    Option("--ready", section=GROUPS, verbs=SUPERVISING, read=_read_ready, metavar="CHECK",
           help="A rank is ready once tcp:PORT or http:URL answers, text:REGEX is in its output, or exec:CMD"
                " succeeds; CHECK may use {rank+8000}; then the next group starts"),
    Option("--ready-timeout", section=GROUPS, verbs=SUPERVISING, read=read_seconds, number=True,
           metavar="TIME", default="600", help="Stop the run if ranks are not ready after TIME"),
    Option("--until", section=GROUPS, verbs=SUPERVISING, read=read_group_name, metavar="NAME",
           is_setting=False,
           help="Stop the other groups once all ranks of a group have exited; its exit code counts"),
    Option("--rendezvous", section=RANKS, verbs=RUN, flag=True, whole_run=True,
           help="Set MASTER_ADDR and a free MASTER_PORT for torch.distributed, equal for all ranks"),
    Option("--stdin", section=RANKS, verbs=RUN, read=one_of(("first", "none")), whole_run=True,
           words=("first", "none"), default="first", metavar="RANK",
           help="Who reads standard input: {words}; first is rank 0; a rank gets a terminal only if it is the"
                " only rank"),
    Option("--rank", section=RANKS, verbs=EXEC, read=at_least(0), metavar="R", is_setting=False,
           help="The rank in the whole job, from 0", default_help="--local-rank"),
    Option("--size", section=RANKS, verbs=EXEC, read=at_least(1), metavar="N", is_setting=False,
           help="The number of ranks of the whole job", default_help="--local-size"),
    Option("--local-rank", section=RANKS, verbs=EXEC, read=at_least(0), metavar="R",
           is_setting=False, help="The rank on this machine, from 0: start ranks without a launcher",
           default_help="from the launcher"),
    Option("--local-size", section=RANKS, verbs=EXEC, read=at_least(1), metavar="N",
           is_setting=False, help="The number of ranks on this machine", default_help="from the launcher"),
    Option("--task-prolog", section=RANKS, verbs=EXEC, flag=True, is_setting=False,
           help="In Slurm's TaskProlog: bind the task, print its variables, start nothing"),
    Option("--fill", section=RANKS, verbs=STARTING, flag=True,
           help="Fill {rank}, {threads} and other placeholders in the command too"),
    Option("--chdir", section=RANKS, verbs=STARTING, read=read_directory, metavar="DIR",
           complete=DIRECTORIES, help="Start ranks in DIR, which may use {rank} and so on"),
    Option("--wrap", section=RANKS, verbs=STARTING, read=read_wrapper_words, metavar="CMD",
           help="Start ranks as CMD followed by the command: 'perf stat -o perf.{rank}'"),
    Option("--output", section=OUTPUT, verbs=RUN, read=_read_modes, words=(*MODES, "tag,files"),
           metavar="MODES", everyday=True,
           help="inherit (unchanged), tag (rank before each line), files (in --log-dir), 'tag,files'",
           default_help="inherit"),
    Option("--log-dir", section=OUTPUT, verbs=RUN, read=_read_log_directory, complete=DIRECTORIES,
           metavar="DIR", everyday=True, help="Write DIR/RANK.out, DIR/RANK.err; DIR may use {run_id}"),
    Option("--force", section=OUTPUT, verbs=RUN, flag=True,
           help="Overwrite existing files in --log-dir"),
    Option("--timestamps", section=OUTPUT, verbs=RUN, flag=True,
           help="With --output tag, add the time to each line"),
    Option("--pty", section=OUTPUT, verbs=RUN, flag=True,
           help="With --output tag, give ranks a pseudo-terminal, so that they write each line at once"),
    Option("-q", "--quiet", section=OUTPUT, verbs=STARTING, flag=True, help="Print only errors"),
    Option("-v", "--verbose", section=OUTPUT, verbs=STARTING, flag=True, everyday=True,
           rare_in=("bench",), help="Plan, resource usage (run, bench); line per rank (exec)"),
    Option("--on-failure", section=STOPPING, verbs=RUN, read=_read_on_failure, whole_run=False,
           words=("stop", CONTINUE, _RESTART), default="stop", metavar="ACTION", everyday=True,
           help="If a rank fails: {words}[:N]"),
    Option("--timeout", section=STOPPING, verbs=SUPERVISING, read=read_seconds, number=True,
           metavar="TIME", everyday=True, help="Stop ranks after TIME (90, 1h30m; 0: never), code 124"),
    Option("--grace", section=STOPPING, verbs=SUPERVISING, read=read_seconds, number=True,
           metavar="TIME", default="10", help="Time between the steps of stopping: signal, SIGTERM, SIGKILL"),
    Option("--keep-descendants", section=STOPPING, verbs=RUN, flag=True,
           help="Do not kill daemons of a finished rank that have left its process group"),
    Option("--verify", section=STOPPING, verbs=RUN, read=_read_verify, bare="", words=(STRICT,),
           metavar="[=strict]", everyday=True,
           help="Check threads during the run; =strict: stop on an error"),
    Option("--report", section=STOPPING, verbs=RUN, read=read_path, complete=FILES, metavar="FILE",
           everyday=True, help="Write plan, exit codes and resource usage as JSON"),
    Option("--dry-run", section=STOPPING, verbs=STARTING, flag=True, everyday=True,
           help="Show the plan, or candidates (bench), and start nothing"),
)  # fmt: skip
