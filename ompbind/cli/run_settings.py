"""What `run` makes from the values of its options: its name, paths, output, and the options of the run."""

from __future__ import annotations

import os
import sys
import time

from ompbind.cli.options.running import CONTINUE, STRICT, make_modes
from ompbind.errors import LaunchError, RequestError
from ompbind.execution.run_options import RunOptions
from ompbind.planning.plan import Plan
from ompbind.planning.rank_command import RunSpec, make_commands
from ompbind.planning.rank_variables import OMPBIND_RUN_ID

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    # help and a dry run need none of these
    from ompbind.execution.output.options import Output
    from ompbind.inspection.expectation import ExpectedBinding


def choose_run_id(run_id: str | None) -> str:
    """Return the name of a run: that of --run-id, or a new one.

    Raises RequestError for the name of the enclosing run: processes of both runs would look alike.
    """
    if run_id and run_id == os.environ.get(OMPBIND_RUN_ID):
        hint = "choose another name, or omit --run-id"
        raise RequestError(f"--run-id {run_id}: the enclosing run has this name", hint=hint)
    return run_id or make_run_id()


def make_run_id() -> str:
    """Return the name of a run without --run-id: from its start and its process."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def fill_paths(options: Mapping[str, Any], run_id: str) -> dict[str, str]:
    """Return the paths of --log-dir and --report that are given, with {run_id} filled in.

    Raises LaunchError for a relative path if the current directory was deleted.
    """
    named = {name: options[name] for name in ("log_dir", "report") if options[name] is not None}
    for name, path in named.items():
        if not os.path.isabs(path):
            _check_directory(f"--{name.replace('_', '-')} {path}")
    if not named:
        return {}
    from ompbind.planning.placeholders import fill  # late: few runs write files

    return {name: fill(path, {"run_id": run_id}) for name, path in named.items()}


def _check_directory(option: str) -> None:
    """Raise LaunchError if a relative path means nothing, because the current directory was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        hint = "give an absolute path, or change to another directory"
        raise LaunchError(f"{option}: the current directory was removed", hint=hint) from error


def make_output(options: Mapping[str, Any]) -> Output | None:
    """Make the output options of the run; None where ranks inherit the output of ompbind."""
    directory, modes = options["log_dir"], make_modes(options)
    if modes == ("inherit",):
        return None
    from ompbind.cli.terminal import supports_colours  # late: by default output is inherited
    from ompbind.execution.output.options import Output

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

    Raises LaunchError where --verify is given and this system shows no threads, and RequestError where the
    plan has a single rank that has the terminal and would be restarted.
    """
    on_failure = options["on_failure"]
    restart = None if isinstance(on_failure, str) else on_failure
    if restart:
        _check_restart(options, plan)
    return RunOptions(
        run_id=spec.run_id,
        output=options["output"],
        grace_s=options["grace"],
        timeout_s=options["timeout"] or None,
        stop_on_failure=on_failure != CONTINUE,
        restart=restart,
        stdin_first=options["stdin"] == "first",
        keep_descendants=options["keep_descendants"],
        expected=None if options["verify"] is None else _expect_ranks(plan, spec),
        strict=options["verify"] == STRICT,
        has_quota=plan.machine.quota is not None,
    )


def _check_restart(options: Mapping[str, Any], plan: Plan) -> None:
    """Raise RequestError for a single rank that has the terminal.

    The rules of options cannot know this with -n auto.
    """
    from ompbind.cli.options.running_rules import TERMINAL, TERMINAL_HINT, reads_terminal  # late: few restart

    if reads_terminal(options, len(plan.placements)):
        raise RequestError(f"--on-failure restart {TERMINAL}", hint=TERMINAL_HINT)


def _expect_ranks(plan: Plan, spec: RunSpec) -> dict[int, tuple[ExpectedBinding, int]]:
    """Return the expected binding of every rank, with its number of threads."""
    from ompbind.execution.verify.expect_ranks import expect_ranks  # late: few runs are verified

    if not plan.machine.bindable:
        raise LaunchError("threads cannot be verified on this system", hint="omit --verify")
    return expect_ranks(plan, spec.run_id, make_commands(plan, spec))
