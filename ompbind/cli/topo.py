"""`ompbind topo`: show the machine."""

import click

from ompbind.cli.options import TOPOLOGY
from ompbind.cli.verb import Verb, option
from ompbind.machine.sources import read_machine
from ompbind.report.machine import render_json, render_tree

EXAMPLES = (
    ("This machine", "ompbind topo"),
    ("A recorded one, for a program", "ompbind topo --topology machine.tar.gz --format json"),
)


@click.command(
    "topo", cls=Verb, examples=EXAMPLES, short_help="Show the machine: packages, nodes, caches, cores."
)
@option(
    "Options",
    "--format",
    "format_",
    type=click.Choice(["tree", "json"]),
    default="tree",
    show_default=True,
    help="How to print it.",
)
@TOPOLOGY.under("Options")
def topo(format_: str, topology: str) -> int:
    """Show the machine: its packages, nodes, caches and cores, and what may be used."""
    machine = read_machine(topology)
    click.echo(render_tree(machine) if format_ == "tree" else render_json(machine))
    return 0
