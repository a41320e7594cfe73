"""The table of all formats of `ompbind plan`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Literal

from ompbind.record import Record


class Format(Record):
    """A format of a plan: its function, the ranks that it is for, and the arguments of the function.

    `render` is "module:function"; it is imported when the format is chosen. `ranks` is "all" for the whole
    plan, "one" for a single rank (of several, --rank chooses it), "any" for all ranks or the rank of --rank.
    The function takes the plan, and what `takes` names: the "variables" of these ranks, or the "screen" that
    shows the text. With `shows_notes` the text contains at least the warnings of the plan; otherwise they go
    to standard error. With `lacks_devices` the text cannot give ranks their devices, with `lacks_groups` it
    has one memory mode and one binding mode for all groups. `help` follows the name of the format in --help.
    """

    render: str
    ranks: Literal["all", "one", "any"]
    takes: Literal["nothing", "variables", "screen"] = "nothing"
    shows_notes: bool = False
    lacks_devices: bool = False
    lacks_groups: bool = False
    help: str = ""

    def load(self) -> Callable[..., str]:
        """Import and return the function of the format."""
        return load_function(self.render)


def load_function(reference: str) -> Callable[..., str]:
    """Import and return the function that "module:function" names."""
    module, _, name = reference.partition(":")
    function: Callable[..., str] = getattr(import_module(module), name)
    return function


_REPORT = "ompbind.report"
_EXPORT = "ompbind.report.export"

FORMATS: Mapping[str, Format] = {
    "table": Format(render=f"{_REPORT}.plan:render_plan", ranks="all", takes="screen", shows_notes=True),
    "picture": Format(render=f"{_REPORT}.picture:render_picture", ranks="all", takes="screen",
                      shows_notes=True, help="in the terminal"),
    "svg": Format(render=f"{_REPORT}.picture:render_plan_svg", ranks="all", shows_notes=True),
    "json": Format(render=f"{_REPORT}.plan_json:render_plan_json", ranks="all", takes="variables",
                   shows_notes=True),
    "mask": Format(render=f"{_EXPORT}:render_mask", ranks="all", lacks_devices=True,
                   help="as -n and -m"),
    "env": Format(render=f"{_EXPORT}:render_env", ranks="one", takes="variables",
                  help="the variables of one rank"),
    "sh": Format(render=f"{_EXPORT}:render_sh", ranks="one", takes="variables",
                 help="the same, as shell commands"),
    "taskset": Format(render=f"{_EXPORT}:render_taskset", ranks="any", lacks_devices=True),
    "numactl": Format(render=f"{_EXPORT}:render_numactl", ranks="any", lacks_devices=True),
    "vllm": Format(render=f"{_EXPORT}:render_vllm", ranks="all", lacks_devices=True,
                   lacks_groups=True),
    "sglang": Format(render=f"{_EXPORT}:render_sglang", ranks="all", lacks_devices=True,
                     lacks_groups=True),
    "slurm": Format(render=f"{_EXPORT}:render_slurm", ranks="all", lacks_groups=True),
    "systemd": Format(render=f"{_EXPORT}:render_systemd", ranks="one", takes="variables",
                      help="settings for the service of one rank"),
    "docker": Format(render=f"{_EXPORT}:render_docker", ranks="any", takes="variables",
                     help="and podman"),
}  # fmt: skip
"""Every format by its name, in the order of --help."""


def formats_help() -> str:
    """Return the names of all formats, each with its help in parentheses."""
    return ", ".join(f"{name} ({row.help})" if row.help else name for name, row in FORMATS.items())


def formats_for(ranks: Literal["all", "one", "any"]) -> str:
    """Return the names of the formats with a value of `ranks`."""
    return ", ".join(name for name, row in FORMATS.items() if row.ranks == ranks)
