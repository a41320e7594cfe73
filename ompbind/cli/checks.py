"""The table of options that have no effect because of another option, and what follows from it.

If both options are of one level, this is an error, or a warning if the plan is still what was requested. If
not, the option of the command line or of the higher level counts, which -v shows.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ompbind.cli.option import Sources, ValueLevel, VerbContext
from ompbind.cli.options import make_modes
from ompbind.commands.rank_command import EXEC, HTTP, TCP
from ompbind.cpuset import join_words
from ompbind.errors import RequestError
from ompbind.masks.mask import MaskWord
from ompbind.openmp.binding import Bind
from ompbind.planning.request import Hold
from ompbind.planning.strategies import list_others_that_take
from ompbind.record import Record

Values = Mapping[str, Any]  # the values of all options of a verb by name, as click has them


class Check(Record):
    """One reason why an option has no effect.

    It applies to `option` if `when` is true, because of the option `other`. `text` continues a sentence that
    begins with the option; {other} is that other option. With `warning`, the plan is still what was
    requested.
    """

    option: str
    other: str
    when: Callable[[Values], Any]
    text: str = "has no effect with {other}"
    hint: str | Callable[[Values], str] = "use only one of them"
    warning: bool = False


def _is_unbound(values: Values) -> bool:  # every rank may use all CPUs, and its threads are not bound
    return values["mask"] is not None and values["mask"].word is MaskWord.NONE


def _names_cpus(values: Values) -> bool:
    return values["mask"] is not None and values["mask"].word is None


def _has_parts(values: Values) -> bool:
    return values["mask"] is not None and len(values["mask"].parts) > 1


def _list_strategies_for_devices(values: Values) -> str:
    """Return the strategies to use with devices, "" if the strategy can be used."""
    usable = values["devices"] and not _is_unbound(values) and not _has_parts(values)
    return list_others_that_take("devices", values["strategy"]) if usable else ""


def _writes(mode: str, values: Values) -> bool:
    return mode in make_modes(values["output"], values["log_dir"])


def reads_terminal(ranks: int | str, stdin: str) -> bool:
    """Return whether the ranks are a single rank that gets the terminal."""
    return ranks == 1 and stdin == "first" and os.isatty(0)


def _has_groups(values: Values) -> bool:
    return bool(values["name"] or values.get("group"))


def _lacks(name: str) -> Callable[[Values], bool]:
    return lambda values: values[name] is None


CONTRADICT = "and {other} contradict each other"
_DECIDED_BY_PARTS = "the mask names the CPUs of each rank; a strategy divides a mask without '|'"
TERMINAL = "cannot restart a single rank that has the terminal"
TERMINAL_HINT = "redirect its standard input, as in '< /dev/null', or add --stdin none"
_GROUPS_HINT = "name the groups: --name server -- ./server : --name load -- ./client"
_IDENTITY_HINT = "--local-rank and --local-size identify a rank; with other machines, --rank and --size too"

_FOR_RUNNING_RANKS = (
    "stdin", "on_failure", "output", "log_dir", "force", "timestamps",
    "pty", "timeout", "grace", "keep_descendants", "verify", "report", "wait", "hold",
)  # fmt: skip
"""Options that have no effect in a dry run, which starts no ranks."""

CHECKS = (
    Check(option="share", other="exclusive", when=lambda v: v["exclusive"], text=CONTRADICT),
    Check(option="share", other="avoid", when=lambda v: v["avoid"], text=CONTRADICT),
    Check(option="avoid", other="exclusive", when=lambda v: v["exclusive"], text=CONTRADICT),
    Check(option="verbose", other="quiet", when=lambda v: v.get("quiet"), text=CONTRADICT),
    Check(option="task_prolog", other="dry_run", when=lambda v: v["dry_run"], text=CONTRADICT),
    # `--mask none` is the same as `--strategy all --smt all --bind none`, so these do not contradict it
    Check(option="strategy", other="mask", when=_has_parts, hint=_DECIDED_BY_PARTS),
    Check(option="strategy", other="mask", when=lambda v: _is_unbound(v) and v["strategy"] != "all"),
    Check(option="strategy", other="devices", when=_list_strategies_for_devices, text=CONTRADICT,
          hint=lambda v: f"use {_list_strategies_for_devices(v)}; ranks get CPUs near their devices"),
    Check(option="smt", other="mask", when=lambda v: _is_unbound(v) and v["smt"] != "all"),
    Check(option="smt", other="mask", when=lambda v: v["smt"] == "all" and _names_cpus(v), warning=True,
          text="has no effect with {other}: ranks get all CPUs that a mask names"),
    Check(option="sibling", other="mask", when=_is_unbound),
    Check(option="sibling", other="smt", when=lambda v: v["smt"] == "all", warning=True),
    Check(option="sibling", other="mask", when=lambda v: v["smt"] == "auto" and _names_cpus(v), warning=True,
          text="has no effect with {other}: ranks get all CPUs that a mask names, unless --smt limits them"),
    Check(option="cores", other="mask", when=_is_unbound),
    Check(option="cores", other="mask", when=_has_parts, hint=_DECIDED_BY_PARTS),
    Check(option="cores", other="strategy", when=lambda v: list_others_that_take("cores", v["strategy"]),
          hint=lambda v: f"use {list_others_that_take('cores', v['strategy'])}"),
    Check(option="service_cores", other="bind", when=lambda v: v["bind"] is Bind.EXACT,
          text="has no effect with {other}: only threads that are not bound could use these CPUs",
          hint="use --bind thread: it binds all OpenMP threads except the initial thread"),
    Check(option="reserve_total", other="reserve", when=lambda v: v["reserve"], text=CONTRADICT,
          hint="use --reserve for cores per rank, or --reserve-total for cores of the whole machine"),
    Check(option="wait", other="exclusive", when=lambda v: not (v["avoid"] or v["exclusive"]),
          text="needs --avoid or --exclusive",
          hint="add --exclusive (no other run on the CPUs) or --avoid (other CPUs if some are free)"),
    Check(option="allow_partial", other="mask", warning=True,
          when=lambda v: v["mask"] is not None and not (_names_cpus(v) or v.get("compat"))),
    Check(option="allow_partial", other="mask", when=lambda v: v["mask"] is None and not v.get("compat"),
          text="has no effect without --mask", warning=True),
    Check(option="bind", other="mask", when=lambda v: _is_unbound(v) and v["bind"] is not Bind.NONE,
          text=CONTRADICT),
    Check(option="proc_bind", other="mask", when=_is_unbound),
    Check(option="proc_bind", other="bind", when=lambda v: v["bind"] in (Bind.RANK, Bind.NONE),
          hint="use --bind core, thread or exact, which make several places"),
    Check(option="omp_runtime", other="mask", when=_is_unbound, warning=True),
    Check(option="hold", other="mask", when=_is_unbound),
    Check(option="keep_descendants", other="hold", when=lambda v: v["hold"] is Hold.ANSWERED, warning=True,
          text="with {other}: daemons that outlive the run cannot bind threads then, unless it is =fixed"),
    Check(option="hold", other="task_prolog", when=lambda v: v["task_prolog"],
          text="cannot be used with {other}",
          hint="the task is another process: write 'ompbind exec --hold' before the command"),
    Check(option="omp_runtime", other="bind", when=lambda v: v["bind"] is Bind.NONE, warning=True),
    *(Check(option=name, other="devices", when=lambda v: not v["devices"],
            text="has no effect without --devices", hint="add --devices gpu")
      for name in ("devices_per_rank", "share_devices")),
    *(Check(option=name, other="name", when=lambda v: not _has_groups(v),
            text="has no effect without --name", hint=_GROUPS_HINT)
      for name in ("ready", "ready_timeout", "until")),
    Check(option="ready_timeout", other="ready", when=lambda v: not v["ready"],
          text="has no effect without --ready", hint="--ready says when the ranks of this group are ready"),
    Check(option="ready", other="log_dir", text="(a text in the output) reads log files, and there are none",
          when=lambda v: v["name"] and not (v["ready"].startswith((TCP, HTTP, EXEC)) or _writes("files", v)),
          hint="add --log-dir DIR; --output tag,files shows the lines too"),
    *(Check(option=name, other=needed, when=_lacks(needed), text="needs {other}", hint=_IDENTITY_HINT)
      for name, others in (("rank", ("size", "local_rank", "local_size")), ("local_rank", ("local_size",)),
                           ("size", ("rank", "local_rank", "local_size")), ("local_size", ("local_rank",)))
      for needed in others),
    Check(option="on_failure", other="rendezvous", text="cannot be used with {other}",
          when=lambda v: v["rendezvous"] and not isinstance(v["on_failure"], str),
          hint="'torchrun --max-restarts N' starts all ranks again together"),
    Check(option="on_failure", other="stdin", text=TERMINAL, hint=TERMINAL_HINT,  # groups count all ranks
          when=lambda v: (not _has_groups(v) and not isinstance(v["on_failure"], str)
                          and reads_terminal(v["ranks"], v["stdin"]))),
    Check(option="output", other="log_dir", when=lambda v: _writes("files", v) and v["log_dir"] is None,
          text="needs --log-dir DIR", hint="name the directory of the log files"),
    Check(option="log_dir", other="output", when=lambda v: v["output"] == ("inherit",),
          hint="write --output tag or files to use log files"),
    Check(option="force", other="log_dir", when=lambda v: v["log_dir"] is v["report"] is None,
          text="needs --log-dir or --report", hint="--force overwrites the files of these"),
    *(Check(option=name, other="output", when=lambda v: not _writes("tag", v),
            text="needs --output tag", hint="omit it, or add --output tag")
      for name in ("timestamps", "pty")),
    *(Check(option=name, other="dry_run", when=lambda v: v["dry_run"], warning=True)
      for name in _FOR_RUNNING_RANKS),
)  # fmt: skip
"""The checks of options that several verbs have; the first one that applies to an option counts."""


def check_options(ctx: VerbContext, own: Sequence[Check] = ()) -> tuple[list[str], list[str]]:
    """Check the options of a verb, also by `own` checks; return warnings, and texts about what gave way.

    An option that gives way gets its default. A variable or a file is for many runs, so an option that comes
    from there gives way to a default too. Raises RequestError for options of one level.
    """
    values, sources = ctx.params, ctx.sources
    warnings: dict[str, list[str]] = {}
    replaced = []
    given = [name for name in sources.options if sources.is_given(name)]
    for name in sorted(given, key=sources.level, reverse=True):
        rows = [check for check in (*CHECKS, *own) if check.option == name and check.other in values]
        while differs_from_default(name, values, sources) and (
            check := next((check for check in rows if check.when(values)), None)
        ):
            other, level = check.other, sources.level(name)
            rival = sources.level(other) if differs_from_default(other, values, sources) else None
            text = check.text.format(other=_render_other(other, sources))
            of_one_level = level == sources.level(other)
            if level < ValueLevel.COMMAND_LINE and not of_one_level and (rival is None or level < rival):
                loser, winner = name, other
            elif check.warning:
                warnings.setdefault(text, []).append(sources.render(name))
                break
            elif rival is not None and level > rival:
                loser, winner = other, name
            else:
                hint = check.hint if isinstance(check.hint, str) else check.hint(values)
                raise RequestError(f"{sources.render(name)} {text}", hint=hint)
            replaced.append(f"{sources.render(loser)} is not used with {_render_other(winner, sources)}")
            values[loser] = sources.options[loser].default_value
            del sources.effective[loser]
    return [
        f"{join_words(names)} {text.replace('has', 'have', 1) if names[1:] else text}"
        for text, names in warnings.items()
    ], replaced


def differs_from_default(name: str, values: Values, sources: Sources) -> bool:
    """Return whether an option has another value than its default."""
    return sources.is_given(name) and values[name] != sources.options[name].default_value


def _render_other(name: str, sources: Sources) -> str:
    """Return the option that prevents another: as it could be written, and whether that is its default."""
    is_default = not sources.is_given(name) and sources.options[name].default_text is not None
    return f"the default {sources.render(name)}" if is_default else sources.render(name)
