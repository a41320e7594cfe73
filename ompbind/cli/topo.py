"""`ompbind topo`: show the machine."""

from ompbind.cli.console import write_stdout
from ompbind.cli.description import Description
from ompbind.cli.options.values import Values
from ompbind.cli.terminal import read_screen
from ompbind.cli.verb import Verb
from ompbind.machine.model import Machine
from ompbind.machine.sources.reading import read_machine

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


def _show(options: Values) -> int:
    """Show the machine: its CPUs and devices, and which CPUs are allowed."""
    write_stdout(_render(read_machine(options["topology"], devices=True), options["format"]))
    return 0


def _render(machine: Machine, format_: str) -> str:
    if format_ == "json":
        from ompbind.report.topology_json import render_json  # late, as below: only one format is needed

        return render_json(machine)
    if format_ == "svg":
        from ompbind.report.diagram.svg import render_svg

        return render_svg(machine)
    if format_ == "table":
        from ompbind.report.topology_table import render_listing

        return render_listing(machine, read_screen())
    from ompbind.report.topology_tree import render_tree

    return render_tree(machine, read_screen())


VERB = Verb(
    name="topo",
    run=_show,
    describe=lambda: Description(
        help=HELP, summary="Show the machine: NUMA nodes, caches, cores, GPUs, NICs.", examples=EXAMPLES
    ),
)
