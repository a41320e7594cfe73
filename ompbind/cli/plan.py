"""`ompbind plan`: show the plan without starting anything."""

from collections.abc import Callable, Mapping
from typing import Literal

from ompbind.cli import OUTPUT, register
from ompbind.cli.console import print_message, read_screen, write_stdout
from ompbind.cli.option import Option, VerbContext
from ompbind.cli.readers import at_least
from ompbind.cli.settings import make_planning_settings, make_requests, make_spec_of_run
from ompbind.cli.verb import Verb
from ompbind.commands.environment import make_all_variables
from ompbind.cpuset import join_words
from ompbind.errors import OptionError
from ompbind.planning.plan import Plan
from ompbind.record import Record
from ompbind.report import export
from ompbind.report.picture import render_picture, render_plan_svg
from ompbind.report.plan import render_plan
from ompbind.report.plan_json import render_plan_json

RUN_ID = "plan"  # the name of the run where --run-id is not given, so that equal plans print equally

EXAMPLES = (
    ("The CPUs of four ranks", "ompbind plan -n 4"),
    ("The same, as a picture", "ompbind plan -n 4 --format picture"),
    ("The same, as options of run", "ompbind plan -n 4 --format mask"),
    ("Let Slurm bind two tasks on a whole node", "srun $(ompbind plan -n 2 --format slurm) ./app"),
    ("For another machine", "ompbind plan -n 4 --topology sample:epyc-2p"),
    ("The same, as JSON", "ompbind plan -n 4 --topology sample:epyc-2p --format json"),
    ("Give each of two ranks GPUs, and CPUs near them", "ompbind plan -n 2 --devices gpu"),
    ("Set the variables of rank 1 in this shell, which is not bound",
     'eval "$(ompbind plan -n 2 --format sh --rank 1)"'),
    ("Set the CPUs of both workers of 'vllm serve MODEL -tp 2'",
     'eval "$(ompbind plan -n 2 --compat vllm --format vllm)"'),
)  # fmt: skip

DETAILS = "The same request on the same machine, with the same other runs on it, always gives the same plan."


class Format(Record):
    """A format of a plan: its function, the ranks that it is for, and the arguments of the function.

    `ranks` is "all" for the whole plan, "one" for a single rank (of several, --rank chooses it), "any" for
    all ranks or the rank of --rank. The function takes the plan, and what `takes` names: the "variables" of
    these ranks, or the "screen" that shows the text. With `shows_notes` the text contains at least the
    warnings of the plan; otherwise they go to standard error. With `lacks_devices` the text cannot give ranks
    their devices, with `lacks_groups` it has one memory mode and one binding mode for all groups. `help`
    follows the name of the format in --help.
    """

    render: Callable[..., str]
    ranks: Literal["all", "one", "any"]
    takes: Literal["nothing", "variables", "screen"] = "nothing"
    shows_notes: bool = False
    lacks_devices: bool = False
    lacks_groups: bool = False
    help: str = ""


FORMATS: Mapping[str, Format] = {
    "table": Format(render=render_plan, ranks="all", takes="screen", shows_notes=True),
    "picture": Format(render=render_picture, ranks="all", takes="screen", shows_notes=True,
                      help="in the terminal"),
    "svg": Format(render=render_plan_svg, ranks="all", shows_notes=True),
    "json": Format(render=render_plan_json, ranks="all", takes="variables", shows_notes=True),
    "mask": Format(render=export.render_mask, ranks="all", lacks_devices=True, help="as -n and -m"),
    "env": Format(render=export.render_env, ranks="one", takes="variables",
                  help="the variables of one rank"),
    "sh": Format(render=export.render_sh, ranks="one", takes="variables", help="the same, as shell commands"),
    "taskset": Format(render=export.render_taskset, ranks="any", lacks_devices=True),
    "numactl": Format(render=export.render_numactl, ranks="any", lacks_devices=True),
    "vllm": Format(render=export.render_vllm, ranks="all", lacks_devices=True, lacks_groups=True),
    "sglang": Format(render=export.render_sglang, ranks="all", lacks_devices=True, lacks_groups=True),
    "slurm": Format(render=export.render_slurm, ranks="all", lacks_groups=True),
    "systemd": Format(render=export.render_systemd, ranks="one", takes="variables",
                      help="settings for the service of one rank"),
    "docker": Format(render=export.render_docker, ranks="any", takes="variables", help="and podman"),
    **{name: Format(render=render, ranks="any", takes="variables", lacks_devices=True, lacks_groups=True)
       for name, render in (("compose", export.render_compose), ("kubernetes", export.render_kubernetes),
                            ("k8s", export.render_kubernetes))},
}  # fmt: skip
"""Every format by its name, in the order of --help."""

_HELP = ", ".join(f"{name} ({row.help})" if row.help else name for name, row in FORMATS.items())
_OF_ONE = [name for name, row in FORMATS.items() if row.ranks == "one"]
_OF_ANY = [name for name, row in FORMATS.items() if row.ranks == "any"]

OPTIONS = (
    Option("--format", section=OUTPUT, verbs=("plan",), words=tuple(FORMATS), metavar="NAME", default="table",
           everyday=True, help=f"Output format: {_HELP}"),
    Option("--rank", section=OUTPUT, verbs=("plan",), read=at_least(0), metavar="R", everyday=True,
           is_setting=False,
           help=f"Rank to print; required for {', '.join(_OF_ONE)}; without it, {', '.join(_OF_ANY)} print"
                " all ranks"),
)  # fmt: skip


def plan(ctx: VerbContext) -> int:
    """Show which CPUs every rank would get; nothing is started.

    If a command is given, the plan is made for the OpenMP runtimes of this command.
    """
    settings = make_planning_settings(ctx)
    parts, format_, rank = settings.parts, settings.format, settings.rank
    chosen = FORMATS[format_]
    if rank is not None and chosen.ranks == "all":
        usable = [name for name, row in FORMATS.items() if row.ranks != "all"]
        raise OptionError(f"--rank requires --format {join_words(usable, 'or')}")
    spec = make_spec_of_run(parts, RUN_ID)
    machine = register.read_planning_machine(*parts)
    request = make_requests(parts, spec, machine, for_workers=settings.compat == format_)
    request = register.prefer_free_cores(request, machine)
    planned = register.plan_or_suggest(machine, request, register.read_other_runs(machine, request))
    variables = make_all_variables(planned, spec) if chosen.takes == "variables" else []
    if chosen.ranks == "one" or rank is not None:
        if (rank or 0) > (last := len(planned.placements) - 1):
            ranks = f"ranks 0 to {last}" if last else "only rank 0"
            raise OptionError(f"--rank {rank}: the plan has {ranks}")
        if rank is None and last:
            raise OptionError(f"choose a rank with --rank, 0 to {last}")
        _, part = planned.find_part(rank or 0)
        planned = _keep_ranks(planned, part, slice(rank or 0, (rank or 0) + 1))
        variables = variables[rank or 0 :][:1]
    for name in ("memory", "bind") if chosen.lacks_groups else ():
        if len({getattr(part.request, name) for part in planned.groups}) > 1:
            text = f"--format {format_} has one --{name} for all ranks, but the groups differ in it"
            raise OptionError(text, hint="use --format json, or a format for one rank with --rank")
    if not chosen.shows_notes:
        register.print_warnings(planned)
    if chosen.lacks_devices and planned.has_devices:
        hint = "let ranks set their variables: ompbind exec --devices"
        print_message(f"warning: --format {format_} cannot give ranks their devices ({hint})")
    screen = [read_screen()] if chosen.takes == "screen" else []
    # groups follow each other if the format has a text for each rank
    by_group = chosen.ranks == "any" and not chosen.lacks_groups
    for first, part in planned.numbered_parts if by_group else [(0, planned)]:
        of_part = slice(first, first + len(part.placements))
        shown = _keep_ranks(planned, part, of_part)
        taken = [variables[of_part]] if chosen.takes == "variables" else screen
        write_stdout(chosen.render(shown, *taken))
    return 0


def _keep_ranks(plan: Plan, part: Plan, ranks: slice) -> Plan:
    """Return a part of a plan with some of the ranks, and with their share of the CPU quota."""
    kept, quota = plan.placements[ranks], plan.machine.quota
    own, every = (sum(len(rank.cpus) for rank in ranks) for ranks in (kept, plan.placements))
    return part.replace(placements=kept, machine=plan.machine.replace(quota=quota and quota * (own / every)))


VERB = Verb(
    "plan",
    plan,
    summary="Show which CPUs every rank would get.",
    page="placement",
    examples=EXAMPLES,
    details=DETAILS,
    words="optional command",
)
