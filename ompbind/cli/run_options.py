"""The options of `run` for starting and supervising ranks, and what is made from their values."""

import os
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from ompbind.cli.click_base import option, seconds
from ompbind.cli.console import print_message, supports_colours
from ompbind.cli.option_rules import CONTRADICT, Objection, Options
from ompbind.cli.planning_options import OUTPUT, QUIET, RANKS
from ompbind.errors import LaunchError
from ompbind.execution.run_options import RunOptions
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_command import RunSpec

if TYPE_CHECKING:  # help and a dry run need none of these
    from ompbind.execution.output.options import Output
    from ompbind.inspection.expectation import ExpectedBinding

STOPPING = "Stop, check and report"
"""The section of the help for failures, time limits, --verify and --report."""

MODES = ("inherit", "tag", "files")


def output_modes(text: str) -> tuple[str, ...]:
    """Read the modes of --output for click: one mode, or tag and files together."""
    modes = tuple(dict.fromkeys(text.split(",")))
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not {', '.join(MODES[:-1])} or {MODES[-1]}")
    if "inherit" in modes and len(modes) > 1:
        raise click.BadParameter("inherit cannot be combined with other modes")
    return modes


ALL_VALUES = "all"
"""The value of --report-env with which secret values are shown too."""

STRICT = "strict"


def verify_mode(text: str) -> str:
    """Read the optional value of --verify for click; "" where none is given."""
    if text in ("", STRICT):
        return text
    forms = f"write --verify or --verify={STRICT}; before a command write --verify --"
    raise click.BadParameter(f"{text!r} is not {STRICT}: {forms}")


def _completing(*words: str) -> Callable[..., list[str]]:
    return lambda ctx, param, text: [word for word in words if word.startswith(text)]


def _make_modes(options: Options) -> tuple[str, ...]:
    """Return where output goes: without --output, to the log files of --log-dir if there are any."""
    return options["output"] or (("inherit",) if options["log_dir"] is None else ("files",))


def _check_dry_run(options: Options) -> Objection | None:
    """Object to an option for running ranks if a dry run starts none."""
    return Objection(other="dry_run", warning=True) if options["dry_run"] else None


def _check_output(options: Options) -> Objection | None:
    if "files" in _make_modes(options) and options["log_dir"] is None:
        hint = "name the directory of the log files"
        return Objection(other="log_dir", text="needs --log-dir DIR", hint=hint)
    return _check_dry_run(options)


def _check_log_dir(options: Options) -> Objection | None:
    if options["output"] == ("inherit",):
        return Objection(other="output", text="needs --output tag or files", hint="omit --output inherit")
    return _check_dry_run(options)


def _check_force(options: Options) -> Objection | None:
    if options["log_dir"] is None:
        return Objection(other="log_dir", text="needs --log-dir", hint="--force overwrites log files only")
    return _check_dry_run(options)


def _check_tag(options: Options) -> Objection | None:
    if "tag" not in _make_modes(options):
        return Objection(other="output", text="needs --output tag", hint="omit it, or add --output tag")
    return _check_dry_run(options)


def _check_report_env(options: Options) -> Objection | None:
    if options["report"] or options["verbose"] or options["dry_run"]:
        return None
    return Objection(other="report", text="has no effect without --report, -v or --dry-run", warning=True)


def _check_verbose(options: Options) -> Objection | None:
    return Objection(other="quiet", text=CONTRADICT) if options["quiet"] else None


_OPTIONS = (
    option(RANKS, "--rendezvous", is_flag=True,
           help="Set MASTER_ADDR and a free MASTER_PORT for torch.distributed, equal for all ranks"),
    option(RANKS, "--stdin", type=click.Choice(["first", "none"]), default="first", metavar="RANK",
           help="Who reads standard input: first (default; rank 0) or none; a rank gets a terminal only"
                " if it is the only rank",
           rule=_check_dry_run),
    option(OUTPUT, "--output", type=output_modes, metavar="MODES", everyday=True,
           shell_complete=_completing(*MODES, "tag,files"),
           help="Output: inherit (default, unchanged), tag (rank before each line), files (in --log-dir),"
                " 'tag,files'",
           rule=_check_output),
    option(OUTPUT, "--log-dir", type=click.Path(file_okay=False), metavar="DIR", everyday=True,
           help="Write DIR/RANK.out, DIR/RANK.err; DIR may use {run_id}",
           rule=_check_log_dir),
    option(OUTPUT, "--force", is_flag=True, help="Overwrite existing files in --log-dir",
           rule=_check_force),
    option(OUTPUT, "--timestamps", is_flag=True, help="With --output tag, add the time to each line",
           rule=_check_tag),
    option(OUTPUT, "--pty", is_flag=True,
           help="With --output tag, give ranks a pseudo-terminal, so that they write each line at once",
           rule=_check_tag),
    QUIET,
    option(OUTPUT, "-v", "--verbose", is_flag=True, everyday=True,
           help="Show the plan first, resource usage at the end",
           rule=_check_verbose),
    option(STOPPING, "--on-failure", type=click.Choice(["stop", "continue"]), default="stop",
           metavar="ACTION", everyday=True,
           help="If a rank fails, stop (default) or continue the others",
           rule=_check_dry_run),
    option(STOPPING, "--timeout", type=seconds, metavar="TIME", everyday=True,
           help="Stop after TIME (90, 5m, 1.5h; 0: never), exit code 124",
           rule=_check_dry_run),
    option(STOPPING, "--grace", type=seconds, metavar="TIME", default="10", show_default=True,
           help="Time between the steps of stopping: signal, SIGTERM, SIGKILL",
           rule=_check_dry_run),
    option(STOPPING, "--keep-descendants", is_flag=True,
           help="Do not kill daemons of a finished rank that have left its process group",
           rule=_check_dry_run),
    option(STOPPING, "--verify", type=verify_mode, is_flag=False, flag_value="", metavar="[=strict]",
           shell_complete=_completing(STRICT), everyday=True,
           help="Check threads for the whole run: masks, places, load; =strict: stop with exit code 125 on"
                " an error",
           rule=_check_dry_run),
    option(STOPPING, "--report", type=click.Path(), metavar="FILE", everyday=True,
           help="Write plan, exit codes and resource usage as JSON",
           rule=_check_dry_run),
    option(STOPPING, "--report-env", type=click.Choice(["masked", ALL_VALUES]), default="masked",
           show_default=True, metavar="WHICH",
           help="Values of secret variables (TOKEN, KEY, PASSWORD and so on) in --report, -v and --dry-run:"
                " masked, all",
           rule=_check_report_env),
    option(STOPPING, "--dry-run", is_flag=True, everyday=True, help="Show the plan and start nothing"),
)  # fmt: skip


def running_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for starting and supervising ranks."""
    return reduce(lambda command, add: add(command), reversed(_OPTIONS), function)


def fill_paths(options: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Return the options with {run_id} filled in the paths of --log-dir and --report.

    Raises LaunchError for a relative path if the current directory was deleted.
    """
    named = {name: options[name] for name in ("log_dir", "report") if options[name] is not None}
    for name, path in named.items():
        if not os.path.isabs(path):
            _check_directory(f"--{name.replace('_', '-')} {path}")
    return {**options, **{name: path.replace("{run_id}", run_id) for name, path in named.items()}}


def _check_directory(option: str) -> None:
    """Raise LaunchError if a relative path means nothing, because the current directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        hint = "give an absolute path, or change to another directory"
        raise LaunchError(f"{option}: the current directory was removed", hint=hint) from error


def set_up_rendezvous(options: Mapping[str, Any], spec: RunSpec) -> RunSpec:
    """Add the rendezvous variables if --rendezvous is given; the port is reserved from now on."""
    if not options["rendezvous"]:
        return spec
    from ompbind.execution.rendezvous import (  # late: few runs need it
        add_rendezvous,
        find_replaced_variables,
        open_rendezvous,
    )

    rendezvous = None if options["dry_run"] else open_rendezvous()
    if rendezvous and rendezvous.note and not options["quiet"]:
        print_message(f"--rendezvous: {rendezvous.note}")
    extended_spec = add_rendezvous(spec, rendezvous)
    replaced = ", ".join(f"{name}={value}" for name, value in find_replaced_variables(spec, extended_spec))
    if replaced and not options["quiet"]:
        print_message(f"--rendezvous replaces inherited variables: {replaced}")
    return extended_spec


def make_output(options: Mapping[str, Any]) -> "Output | None":
    """Make the output options of the run; None where ranks inherit the output of ompbind.

    Raises click.UsageError if --log-dir is empty.
    """
    directory, modes = options["log_dir"], _make_modes(options)
    if directory == "":
        context = click.get_current_context(silent=True)
        raise click.UsageError("--log-dir needs the name of a directory", context)
    if modes == ("inherit",):
        return None
    from ompbind.execution.output.options import Output  # late: by default output is inherited

    return Output(
        tag="tag" in modes,
        timestamps=options["timestamps"],
        colours=(supports_colours(sys.stdout), supports_colours(sys.stderr)),
        directory=directory,
        force=options["force"],
        pty=options["pty"],
    )


def make_run_options(options: Mapping[str, Any], plan: Plan, spec: RunSpec) -> RunOptions:
    """Make the options of the supervisor; `options["output"]` is the result of `make_output`.

    Raises LaunchError where --verify is given and this system shows no threads.
    """
    return RunOptions(
        run_id=spec.run_id,
        output=options["output"],
        grace_s=options["grace"],
        timeout_s=options["timeout"] or None,
        stop_on_failure=options["on_failure"] == "stop",
        stdin_first=options["stdin"] == "first",
        keep_descendants=options["keep_descendants"],
        expected=None if options["verify"] is None else _make_expected(plan, spec),
        strict=options["verify"] == STRICT,
    )


def _make_expected(plan: Plan, spec: RunSpec) -> "dict[int, tuple[ExpectedBinding, int]]":
    """Make, for every rank, the expected binding of its threads and their number."""
    # late: few runs are verified
    from ompbind.inspection.expectation import ExpectedBinding, select_variables
    from ompbind.planning.rank_command import make_command, make_local_identities

    if not plan.machine.bindable:
        raise LaunchError("threads cannot be verified on this system", hint="omit --verify")
    bind = plan.request.bind

    def expect(placement: Placement, env: Mapping[str, str]) -> ExpectedBinding:
        return ExpectedBinding(
            rank=placement.rank,
            cpus=placement.cpuset,
            service_cpus=placement.service_cpus,
            places=placement.places,
            bind=bind,
            run_id=spec.run_id,
            memory=placement.memory.kernel_text if placement.memory else "",
            variables=select_variables(env),
        )

    envs = (make_command(plan, identity, spec).env for identity in make_local_identities(plan))
    return {
        placement.rank: (expect(placement, env), placement.threads)
        for placement, env in zip(plan.placements, envs, strict=True)
    }
