"""The options that say how `run` starts its ranks and sees them through, and what they make of them."""

import sys
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from ompbind.cli.click_base import option
from ompbind.cli.console import say, shows_colours
from ompbind.cli.planning_options import QUIET, RUNNING, seconds
from ompbind.errors import LaunchError
from ompbind.execution.run_options import RunOptions
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.rank_command import Job

if TYPE_CHECKING:  # what only shows help or a plan needs none of it
    from ompbind.execution.output.options import Output
    from ompbind.inspection.expectation import Expected

MODES = ("inherit", "tag", "files")


def output_modes(text: str) -> tuple[str, ...]:
    """Read the modes of --output for click: one, or tag and files together."""
    modes = tuple(dict.fromkeys(text.split(",")))
    unknown = [one for one in modes if one not in MODES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not {', '.join(MODES[:-1])} or {MODES[-1]}")
    if "inherit" in modes and len(modes) > 1:
        raise click.BadParameter("output is inherited, or goes through ompbind: 'tag,files' is both of these")
    return modes


STRICT = "strict"


def verifying(text: str) -> str:
    """Read the optional value of --verify for click; "" where none is given."""
    if text in ("", STRICT):
        return text
    raise click.BadParameter(
        f"{text!r} is not {STRICT}; before a command write --verify --", param_hint="'--verify'"
    )


def _completing(*words: str) -> Callable[..., list[str]]:
    return lambda ctx, param, text: [word for word in words if word.startswith(text)]


_OPTIONS = (
    option(RUNNING, "--output", type=output_modes, metavar="MODES",
           shell_complete=_completing(*MODES, "tag,files"),
           help="What becomes of output: inherit (nothing is in between), tag (each line with its rank),"
                " files (in --log-dir), or tag,files.  [default: inherit]"),
    option(RUNNING, "--log-dir", type=click.Path(file_okay=False), metavar="DIR",
           help="Write output to the files DIR/RANK.out and DIR/RANK.err, with --output tag show it as well;"
                " {run_id} is filled in."),
    option(RUNNING, "--force", is_flag=True, help="Overwrite files that are in --log-dir already."),
    option(RUNNING, "--timestamps", is_flag=True, help="With tag: the time of each line as well."),
    option(RUNNING, "--pty", is_flag=True,
           help="With tag: let ranks write to a pseudo-terminal, so that they send every line at once."),
    option(RUNNING, "--stdin", type=click.Choice(["first", "none"]), default="first", show_default=True,
           help="Who reads standard input: rank 0 or nobody. A terminal goes to a single rank only."),
    option(RUNNING, "--on-failure", type=click.Choice(["stop", "continue"]), default="stop",
           show_default=True, help="What to do with the others when a rank fails."),
    option(RUNNING, "--timeout", type=seconds, metavar="SECONDS",
           help="Stop the run after this time, also written as 90s, 5m or 1.5h, with exit code 124;"
                " 0 is never."),
    option(RUNNING, "--grace", type=seconds, metavar="SECONDS", default="10", show_default=True,
           help="Wait this long between the steps of stopping: signal, SIGTERM, SIGKILL."),
    option(RUNNING, "--keep-descendants", is_flag=True,
           help="Let daemons live that have left the process group of their rank, when the rank ends."),
    option(RUNNING, "--rendezvous", is_flag=True,
           help="Give all ranks a MASTER_ADDR and a free MASTER_PORT to meet at, as torch.distributed does."),
    option(RUNNING, "--verify", type=verifying, is_flag=False, flag_value="", metavar="[=strict]",
           shell_complete=_completing(STRICT),
           help="Look at all threads of all ranks until they have settled, and say whether they run where"
                " they should; with =strict the run ends, with exit code 125, where they do not. Only run can"
                " do this: exec leaves nobody who could look."),
    option(RUNNING, "--report", type=click.Path(), metavar="FILE",
           help="Write what ran, how it ended and what it used to a file, as JSON."),
    option(RUNNING, "--dry-run", is_flag=True, help="Show the plan and start nothing."),
    QUIET,
    option(RUNNING, "-v", "--verbose", is_flag=True,
           help="Show the plan before starting, and what each rank used at the end."),
)  # fmt: skip


def running_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how ranks are started and seen through."""
    return reduce(lambda made, add: add(made), reversed(_OPTIONS), function)


def fill_paths(options: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    """Return the options with the name of the run filled in where they name files that it writes."""
    named = {name: options[name] for name in ("log_dir", "report") if options[name] is not None}
    return {**options, **{name: path.replace("{run_id}", run_id) for name, path in named.items()}}


def invite_ranks(options: Mapping[str, Any], job: Job) -> Job:
    """Tell the ranks of a job where they meet, if they are to; the port is held from now on."""
    if not options["rendezvous"]:
        return job
    from ompbind.execution.rendezvous import find_replaced, invite, open_rendezvous  # late: few runs need it

    invited = invite(job, None if options["dry_run"] else open_rendezvous())
    replaced = ", ".join(f"{name}={value}" for name, value in find_replaced(job, invited))
    if replaced and not options["quiet"]:
        say(f"inherited variables that --rendezvous replaces: {replaced}")
    return invited


def make_output(options: Mapping[str, Any]) -> "Output | None":
    """Make what the options say of output, None where ranks inherit it.

    Raises click.UsageError when they contradict each other.
    """
    folder = options["log_dir"]
    modes = options["output"] or (("inherit",) if folder is None else ("files",))
    needs = (
        ("files" in modes and folder is None, "--output files", "--log-dir, which says where"),
        (folder == "", "--log-dir", "the name of a folder"),
        (folder is not None and "inherit" in modes, "--log-dir", "--output tag or files"),
        (options["force"] and folder is None, "--force", "--log-dir"),
        (options["timestamps"] and "tag" not in modes, "--timestamps", "--output tag"),
        (options["pty"] and "tag" not in modes, "--pty", "--output tag"),
    )
    for lacking, given, needed in needs:
        if lacking:
            raise click.UsageError(f"{given} needs {needed}", click.get_current_context(silent=True))
    if modes == ("inherit",):
        return None
    from ompbind.execution.output.options import Output  # late: most runs inherit it

    return Output(
        tag="tag" in modes,
        timestamps=options["timestamps"],
        colours=(shows_colours(sys.stdout), shows_colours(sys.stderr)),
        folder=folder,
        force=options["force"],
        pty=options["pty"],
    )


def make_run_options(options: Mapping[str, Any], plan: Plan, job: Job) -> RunOptions:
    """Make what the options, with their output made, say of how to run the ranks.

    Raises LaunchError where threads are to be verified and cannot be seen.
    """
    return RunOptions(
        run_id=job.run_id,
        output=options["output"],
        grace_s=options["grace"],
        timeout_s=options["timeout"] or None,
        stop_on_failure=options["on_failure"] == "stop",
        stdin_first=options["stdin"] == "first",
        keep_descendants=options["keep_descendants"],
        expected=None if options["verify"] is None else _make_expected(plan, job),
        strict=options["verify"] == STRICT,
    )


def _make_expected(plan: Plan, job: Job) -> "dict[int, tuple[Expected, int]]":
    """Make what is expected of the threads of every rank, and how many there are to be."""
    from ompbind.inspection.expectation import Expected  # late: few runs are verified

    if not plan.machine.bindable:
        raise LaunchError("threads cannot be verified on this system", hint="leave --verify out")
    bind = plan.request.bind

    def expect(one: Placement) -> Expected:
        memory = one.memory.kernel_text if one.memory else ""
        return Expected(
            rank=one.rank, cpus=one.cpuset, places=one.places, bind=bind, run_id=job.run_id, memory=memory
        )

    return {one.rank: (expect(one), one.threads) for one in plan.placements}
