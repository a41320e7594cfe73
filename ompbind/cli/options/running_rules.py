"""The rules of running options: when an option has no effect, because of another option."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from ompbind.cli.options.option import Objection
from ompbind.cli.options.rules import CONTRADICT

Options: TypeAlias = Mapping[str, Any]


def make_modes(options: Options) -> tuple[str, ...]:
    """Return where output goes: without --output, to the log files of --log-dir if there are any."""
    return options["output"] or (("inherit",) if options["log_dir"] is None else ("files",))


def check_dry_run(options: Options) -> Objection | None:
    """Object to an option for running ranks if a dry run starts none."""
    return Objection(other="dry_run", warning=True) if options["dry_run"] else None


def check_output(options: Options) -> Objection | None:
    """Object to log files without a directory for them."""
    if "files" in make_modes(options) and options["log_dir"] is None:
        hint = "name the directory of the log files"
        return Objection(other="log_dir", text="needs --log-dir DIR", hint=hint)
    return check_dry_run(options)


def check_log_dir(options: Options) -> Objection | None:
    """Object to a directory of log files if output is inherited."""
    if options["output"] == ("inherit",):
        return Objection(other="output", text="needs --output tag or files", hint="omit --output inherit")
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


def check_verbose(options: Options) -> Objection | None:
    """Object to -v if messages are hidden."""
    return Objection(other="quiet", text=CONTRADICT) if options["quiet"] else None
