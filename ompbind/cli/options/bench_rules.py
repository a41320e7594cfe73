"""The rules of the options of `bench`: when an option has no effect, because of another option."""

from ompbind.cli.options.objection import Objection
from ompbind.cli.options.option import Options
from ompbind.cli.options.running_rules import check_dry_run

_METRIC_HINT = "name the number in the output with --metric REGEX"


def check_higher(options: Options) -> Objection | None:
    """Object to a direction of the wall time."""
    if options["metric"]:
        return None
    return Objection(other="metric", text="has no effect without --metric", hint=_METRIC_HINT)


def check_combine(options: Options) -> Objection | None:
    """Object to a way to combine values of ranks where ranks have none."""
    if options["load"]:
        return Objection(
            other="load", text="has no effect with {other}: the load generator has one value", warning=True
        )
    return check_higher(options)


def check_duration(options: Options) -> Objection | None:
    """Object to servers without a metric: their wall time is the duration."""
    if options["metric"]:
        return None
    text = "needs --metric: all runs take the same time"
    return Objection(other="metric", text=text, hint=_METRIC_HINT)


def check_ready(options: Options) -> Objection | None:
    """Object to a check that servers are ready if no servers are measured."""
    return _check_servers(options, "ready")


def check_load(options: Options) -> Objection | None:
    """Object to a load generator if no servers are measured."""
    return _check_servers(options, "load")


def _check_servers(options: Options, name: str) -> Objection | None:
    """Object to the option `name`, which is for servers only."""
    if options["duration"] or not options[name]:
        return None
    hint = "say how long servers are measured with --duration TIME"
    return Objection(other="duration", text="has no effect without --duration", hint=hint)


def check_fail_above(options: Options) -> Objection | None:
    """Object to a limit without sessions to compare."""
    if options["show"]:
        return None
    hint = "write both sessions with --results, then 'ompbind bench --show --fail-above 5% OLD NEW'"
    return Objection(other="show", text="has no effect without --show", hint=hint)


def check_export(options: Options) -> Objection | None:
    """Object to two formats on standard output."""
    unnamed = [name for name, path in options["export"] if not path]
    if len(unnamed) > 1:
        text = "writes several formats to standard output"
        return Objection(other="export", text=text, hint=f"name a file: --export {unnamed[-1]}=FILE")
    if unnamed and options["format"] != "table":
        hint = f"name a file: --export {unnamed[0]}=FILE"
        return Objection(other="format", text="and {other} write to standard output", hint=hint)
    return check_dry_run(options)


def check_save_preset(options: Options) -> Objection | None:
    """Object to a preset if nothing is measured."""
    if options["show"]:
        hint = "write the recommended options below [preset.NAME] in ompbind.toml"
        return Objection(other="show", hint=hint)
    return check_dry_run(options)
