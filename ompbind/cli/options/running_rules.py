"""The rules of running options: when an option has no effect, because of another option."""

from __future__ import annotations

import os

from ompbind.cli.options.objection import Objection
from ompbind.cli.options.option import Options
from ompbind.cli.options.running import make_modes


def check_dry_run(options: Options) -> Objection | None:
    """Object to an option for running ranks if a dry run starts none."""
    return Objection(other="dry_run", warning=True) if options["dry_run"] else None


def check_wrap_ranks(options: Options) -> Objection | None:
    """Object to a choice of wrapped ranks without a wrapper."""
    if options["wrap"]:
        return None
    return Objection(other="wrap", text="has no effect without --wrap", hint="name a wrapper with --wrap CMD")


def check_rank(options: Options) -> Objection | None:
    """Object to --rank without the options that it needs."""
    return _find_missing(options, "rank", "size", "local_rank", "local_size")


def check_size(options: Options) -> Objection | None:
    """Object to --size without the options that it needs."""
    return _find_missing(options, "size", "rank", "local_rank", "local_size")


def check_local_rank(options: Options) -> Objection | None:
    """Object to --local-rank without --local-size."""
    return _find_missing(options, "local_rank", "local_size")


def check_local_size(options: Options) -> Objection | None:
    """Object to --local-size without --local-rank."""
    return _find_missing(options, "local_size", "local_rank")


def _find_missing(options: Options, name: str, *needed: str) -> Objection | None:
    """Object to an option that identifies a rank if another option that it needs is missing."""
    other = next((other for other in needed if options[other] is None), "")
    if options[name] is None or not other:
        return None
    hint = (
        "--local-rank and --local-size identify a rank; --rank and --size too if the job has other machines"
    )
    return Objection(other=other, text="needs {other}", hint=hint)


TERMINAL = "cannot restart a single rank that has the terminal"
TERMINAL_HINT = "redirect its standard input, as in '< /dev/null', or add --stdin none"


def check_on_failure(options: Options) -> Objection | None:
    """Object to restarts of a rank that has the terminal, or that other ranks have met."""
    if isinstance(options["on_failure"], str):
        return check_dry_run(options)
    if options["rendezvous"]:
        hint = "'torchrun --max-restarts N' starts all ranks again together"
        return Objection(other="rendezvous", text="cannot be used with {other}", hint=hint)
    saved = options.get("plan")
    if reads_terminal(options, len(saved.ranks) if saved else options["ranks"]):
        return Objection(other="stdin", text=TERMINAL, hint=TERMINAL_HINT)
    return check_dry_run(options)


def reads_terminal(options: Options, ranks: int | None) -> bool:
    """Return whether the ranks are a single rank that gets the terminal; None for an unknown number."""
    return ranks == 1 and options["stdin"] == "first" and os.isatty(0)


def check_output(options: Options) -> Objection | None:
    """Object to log files without a directory for them."""
    if "files" in make_modes(options) and options["log_dir"] is None:
        hint = "name the directory of the log files"
        return Objection(other="log_dir", text="needs --log-dir DIR", hint=hint)
    return check_dry_run(options)


def check_log_dir(options: Options) -> Objection | None:
    """Object to a directory of log files if output is inherited."""
    if options["output"] == ("inherit",):
        return Objection(other="output", hint="write --output tag or files to use log files")
    return check_dry_run(options)


def check_force(options: Options) -> Objection | None:
    """Object to --force if there are no log files."""
    if options["log_dir"] is None:
        return Objection(other="log_dir", text="needs --log-dir", hint="--force overwrites log files only")
    return check_dry_run(options)


def check_tag(options: Options) -> Objection | None:
    """Object to an option about tagged lines if lines are not tagged."""
    if "tag" not in make_modes(options):
        return Objection(other="output", text="needs --output tag", hint="omit it, or add --output tag")
    return check_dry_run(options)


def check_report_env(options: Options) -> Objection | None:
    """Object to a choice of shown variables if nothing shows variables."""
    if options["report"] or options["verbose"] or options["dry_run"]:
        return None
    return Objection(other="report", text="has no effect without --report, -v or --dry-run", warning=True)
