"""`ompbind topo`: show the machine."""

import click

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.settings import make_settings
from ompbind.cli.verb import Verb
from ompbind.machine.model import Machine
from ompbind.machine.sources.reading import read_machine
from ompbind.record import Record

EXAMPLES = (
    ("This machine", "ompbind topo"),
    ("A line for each CPU and each device", "ompbind topo --format table"),
    ("A picture of another machine", "ompbind topo --topology sample:epyc-2p --format svg"),
    ("A model of a server with 384 CPUs", "ompbind topo --topology sample:epyc-2p"),
    (
        "A machine that is only described",
        "ompbind topo --topology 'synthetic:pack:2 numa:2 l3:4 core:8 pu:2'",
    ),
)


HELP = """Show the machine: its packages, NUMA nodes, caches and cores, its GPUs and NICs, and which CPUs are
allowed.
"""


class TopoSettings(Record):
    """The fields are the options of the same names."""

    topology: str
    format: str


def topo(ctx: click.Context) -> int:
    """Show the machine: its CPUs and devices, and which CPUs are allowed."""
    settings = make_settings(TopoSettings, ctx.params)
    write_stdout(_render(read_machine(settings.topology, devices=True), settings.format))
    return 0


def _render(machine: Machine, format_: str) -> str:
    if format_ == "json":
        from ompbind.report.topology import render_json  # noqa: PLC0415 - door: formats

        return render_json(machine)
    if format_ == "svg":
        from ompbind.report.diagram.svg import render_svg  # noqa: PLC0415 - door: formats

        return render_svg(machine)
    if format_ == "table":
        from ompbind.report.topology import render_listing  # noqa: PLC0415 - door: formats

        return render_listing(machine, read_screen())
    from ompbind.report.topology import render_tree  # noqa: PLC0415 - door: formats

    return render_tree(machine, read_screen())


VERB = Verb(
    "topo",
    topo,
    help=HELP,
    summary="Show the machine: NUMA nodes, caches, cores, GPUs, NICs.",
    examples=EXAMPLES,
)
