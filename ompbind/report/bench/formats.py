"""The table of the formats of `bench --export`."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ompbind.bench.records import Conclusion, Session
from ompbind.record import Record
from ompbind.report.export.formats import load_function

RenderExport: TypeAlias = Callable[[Session, Conclusion], str]
"""Returns the text of an export."""


class ExportFormat(Record):
    """A format of `--export`: its function as "module:function", imported when it is used, and its help."""

    render: str
    help: str = ""

    def load(self) -> RenderExport:
        """Import and return the function of the format."""
        render: RenderExport = load_function(self.render)
        return render


_TEXTS = "ompbind.report.bench.export"

EXPORTS: Mapping[str, ExportFormat] = {
    "json": ExportFormat(render=f"{_TEXTS}:render_json", help="also for scripts of hyperfine"),
    "csv": ExportFormat(render=f"{_TEXTS}:render_csv", help="a row for each run"),
    "markdown": ExportFormat(render=f"{_TEXTS}:render_markdown"),
    "svg": ExportFormat(render="ompbind.report.diagram.charts:render_bench_svg"),
}
"""Every format by its name, in the order of --help."""


def render_export_names() -> str:
    """Return the names of all formats, each with its help in parentheses."""
    return ", ".join(f"{name} ({row.help})" if row.help else name for name, row in EXPORTS.items())
