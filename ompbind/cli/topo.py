"""`ompbind topo`: show the machine."""

import click

from ompbind.cli.console import read_screen, write_stdout
from ompbind.cli.verb import Verb, make_format_option
from ompbind.machine.read import read_machine
from ompbind.report.topology import render_json, render_listing, render_tree

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

_FORMATS = "; table: a line for each CPU and device, svg: a picture for browsers"
OPTIONS = (make_format_option("topo", "tree", "table", "json", "svg", detail=_FORMATS),)


def topo(ctx: click.Context) -> int:
    """Show the machine: its packages, NUMA nodes, caches and cores, its GPUs and NICs, and which CPUs are
    allowed.
    """
    machine, chosen = read_machine(ctx.params["topology"], devices=True), ctx.params["format"]
    if chosen == "json":
        write_stdout(render_json(machine))
    elif chosen == "svg":
        from ompbind.report.picture import render_machine_svg  # noqa: PLC0415 - door: pictures

        write_stdout(render_machine_svg(machine))
    elif chosen == "table":
        write_stdout(render_listing(machine, read_screen()))
    else:
        write_stdout(render_tree(machine, read_screen()))
    return 0


VERB = Verb(
    "topo",
    topo,
    summary="Show the machine: NUMA nodes, caches, cores, GPUs, NICs.",
    page="topo.md",
    examples=EXAMPLES,
)
