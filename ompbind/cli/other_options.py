"""The options of verbs that start nothing."""

from ompbind.cli.option import FILES, Option
from ompbind.cli.readers import at_least, one_of
from ompbind.cli.verbs import CPUS, OUTPUT
from ompbind.report.formats import FORMATS, formats_for, formats_help

INTERVAL_S = 2
"""Seconds between two samples of `inspect --watch`, where none are given."""


def _make_format(*words: str, verbs: tuple[str, ...], detail: str = "") -> Option:
    """Return --format of verbs that print one thing; the first word is the default."""
    text = f"Output format: {{words}}{detail}"
    return Option("--format", verbs=verbs, read=one_of(words), words=words, default=words[0], help=text)


OTHER_OPTIONS = (
    Option("--format", section=OUTPUT, verbs=("plan",), read=one_of(FORMATS), words=tuple(FORMATS),
           metavar="NAME", default="table", everyday=True, help=f"Output format: {formats_help()}"),
    Option("--rank", section=OUTPUT, verbs=("plan",), read=at_least(0), metavar="R", everyday=True,
           is_setting=False,
           help=f"Rank to print; required for {formats_for('one')}; without it, {formats_for('any')} print"
                " all ranks"),
    _make_format("tree", "table", "json", "svg", verbs=("topo",),
                 detail="; table: a line for each CPU and device, svg: a picture for browsers"),
    Option("--python", verbs=("probe",), metavar="PATH", complete=FILES,
           help="The Python whose packages are searched", default_help="of VIRTUAL_ENV, else of ompbind"),
    _make_format("text", "json", verbs=("doctor",)),
    Option("--all", verbs=("inspect",), flag=True, help="All live runs on this machine"),
    Option("-v", "--verbose", verbs=("inspect",), flag=True,
           help="A line for each thread, and all thread pool variables"),
    Option("--problems", verbs=("inspect",), flag=True,
           help="Only the summary, and ranks and processes with issues"),
    Option("-n", "--ranks", section=CPUS, verbs=("rebind",), read=at_least(1), number=True, metavar="N",
           everyday=True, help="Make the N busiest children of the process the ranks",
           default_help="each process is a rank"),
    Option("--dry-run", section=OUTPUT, verbs=("rebind",), flag=True, everyday=True,
           help="Show what would change, and change nothing"),
    _make_format("table", "json", verbs=("probe", "inspect", "ps", "config")),
    Option("--format", section=OUTPUT, verbs=("rebind",), read=one_of(("table", "json")),
           words=("table", "json"), default="table", everyday=True, help="Output format: {words}"),
    Option("--watch", verbs=("inspect",), bare="", metavar="[SECONDS]",
           help=f"Repeat every SECONDS, with the CPU use since the last time (default {INTERVAL_S})"),
)  # fmt: skip
