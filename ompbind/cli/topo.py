"""`ompbind topo`: show the machine."""

import click

from ompbind.cli.options import complete_files
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
@option(
    "Options",
    "--topology",
    metavar="SOURCE",
    default="live",
    show_default=True,
    envvar="OMPBIND_TOPOLOGY",
    shell_complete=complete_files,
    help="The machine: live, a folder with sys/ and proc/, or a .tar.gz of one.",
)
def topo(format_: str, topology: str) -> int:
    """Show the machine: its packages, nodes, caches and cores, and what may be used."""  # fmt: skip
    machine = read_machine(topology)
    click.echo(render_tree(machine) if format_ == "tree" else render_json(machine))
    return 0
