"""All formats in which `ompbind plan` prints a plan, in one table."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Literal

from ompbind.record import Record


class Format(Record):
    """One way to print a plan: where its function is, for which ranks, and what it takes beside the plan.

    `render` is "module:function", which is loaded when the format is asked for; `help` is what --help says
    of it behind its name. `ranks` is "all" for the whole plan, "one" for a single rank, which --rank chooses
    where there are several, and "any" for all ranks, or the one that --rank chooses. The function may take
    the "variables" of these ranks, or the "screen" on which the text is read. `shows_notes` says that the
    text has the notes of the plan, or its warnings at least; otherwise warnings go to standard error.
    """

    render: str
    ranks: Literal["all", "one", "any"]
    takes: Literal["nothing", "variables", "screen"] = "nothing"
    shows_notes: bool = False
    help: str = ""

    def load(self) -> Callable[..., str]:
        """Import the module of the format and return its function."""
        module, _, name = self.render.partition(":")
        render: Callable[..., str] = getattr(import_module(module), name)
        return render


_REPORT = "ompbind.report"
_EXPORT = "ompbind.report.export"

FORMATS: Mapping[str, Format] = {
    "table": Format(render=f"{_REPORT}.plan:render_plan", ranks="all", shows_notes=True),
    "picture": Format(render=f"{_REPORT}.diagram.terminal:render_picture", ranks="all", takes="screen",
                      shows_notes=True, help="in the terminal"),
    "svg": Format(render=f"{_REPORT}.diagram.svg:render_plan_svg", ranks="all", shows_notes=True),
    "json": Format(render=f"{_REPORT}.plan_json:render_plan_json", ranks="all", takes="variables",
                   shows_notes=True),
    "env": Format(render=f"{_EXPORT}.shell:render_env", ranks="one", takes="variables",
                  help="the variables of one rank"),
    "sh": Format(render=f"{_EXPORT}.shell:render_sh", ranks="one", takes="variables",
                 help="the same, as shell commands"),
    "taskset": Format(render=f"{_EXPORT}.taskset:render_taskset", ranks="any"),
    "numactl": Format(render=f"{_EXPORT}.numactl:render_numactl", ranks="any"),
    "vllm": Format(render=f"{_EXPORT}.vllm:render_vllm", ranks="all"),
    "slurm": Format(render=f"{_EXPORT}.slurm:render_slurm", ranks="all"),
    "rankfile": Format(render=f"{_EXPORT}.rankfile:render_rankfile", ranks="all", help="Open MPI"),
    "systemd": Format(render=f"{_EXPORT}.systemd:render_systemd", ranks="one", takes="variables",
                      help="a drop-in for the unit of one rank"),
    "docker": Format(render=f"{_EXPORT}.docker:render_docker", ranks="any", takes="variables",
                     help="and podman"),
}  # fmt: skip
"""Every format by its name, in the order of --help."""


def formats_help() -> str:
    """Name all formats, each with its help in brackets."""
    return ", ".join(f"{name} ({one.help})" if one.help else name for name, one in FORMATS.items())


def formats_for(ranks: Literal["all", "one", "any"]) -> str:
    """Name the formats that are for all ranks, one rank or any."""
    return ", ".join(name for name, one in FORMATS.items() if one.ranks == ranks)
