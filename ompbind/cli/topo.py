"""`ompbind topo`: show the machine."""

import click

from ompbind.cli.click_base import Verb, format_option
from ompbind.cli.console import read_screen
from ompbind.cli.planning_options import TOPOLOGY
from ompbind.machine.model import Machine
from ompbind.machine.sources.table import read_machine

EXAMPLES = (
    ("This machine", "ompbind topo"),
    ("Each CPU on a line", "ompbind topo --format table"),
    ("A picture of a recorded one", "ompbind topo --topology machine.tar.gz --format svg"),
    ("One that is only described", "ompbind topo --topology 'synthetic:pack:2 numa:2 l3:4 core:8 pu:2'"),
)


@click.command(
    "topo", cls=Verb, examples=EXAMPLES, short_help="Show the machine: packages, nodes, caches, cores."
)
@format_option(
    "tree", "table", "json", "svg",
    help="A tree, a table with a line for each CPU, JSON, or a picture for browsers (svg).",
)  # fmt: skip
@TOPOLOGY.under("Options")
def topo(format_: str, topology: str) -> int:
    """Show the machine: its packages, nodes, caches and cores, and what may be used."""
    click.echo(_render(read_machine(topology), format_))
    return 0


def _render(machine: Machine, format_: str) -> str:
    if format_ == "json":
        from ompbind.report.topology_json import render_json  # late, as all: only one of them is needed

        return render_json(machine)
    if format_ == "svg":
        from ompbind.report.diagram.svg import render_svg

        return render_svg(machine)
    if format_ == "table":
        from ompbind.report.topology_table import render_listing

        return render_listing(machine, styled=read_screen().styled)
    from ompbind.report.topology_tree import render_tree

    return render_tree(machine, styled=read_screen().styled)
