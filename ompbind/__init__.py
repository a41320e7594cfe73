"""ompbind starts n copies of a command, each on CPUs of its own, and makes thread pools use them.

What is named here is its interface for Python programs; `docs/python.md` shows it. Importing the package
loads nothing else: every name is loaded when it is first used.
"""

TYPE_CHECKING = False  # a name that type checkers know; typing itself is not loaded for it
if TYPE_CHECKING:
    from ompbind.cpuset import CpuSet
    from ompbind.errors import LaunchError, MachineError, MaskError, OmpbindError, PlanError, RequestError
    from ompbind.launch.claims import look_around
    from ompbind.launch.worker import make_environment, placed
    from ompbind.libraries import OmpRuntime
    from ompbind.machine.programs import read_workload
    from ompbind.machine.sources import read_machine
    from ompbind.mask import Mask, parse_mask
    from ompbind.placement import Placement, Plan
    from ompbind.plan import make_plan
    from ompbind.request import Bind, Memory, ProcBind, Request, Sharing
    from ompbind.topology import Level, Machine
    from ompbind.workload import Workload

__version__ = "0.1.0"

__all__ = [
    "Bind",
    "CpuSet",
    "LaunchError",
    "Level",
    "Machine",
    "MachineError",
    "Mask",
    "MaskError",
    "Memory",
    "OmpRuntime",
    "OmpbindError",
    "Placement",
    "Plan",
    "PlanError",
    "ProcBind",
    "Request",
    "RequestError",
    "Sharing",
    "Workload",
    "__version__",
    "look_around",
    "make_environment",
    "make_plan",
    "parse_mask",
    "placed",
    "read_machine",
    "read_workload",
]

_HOMES = {
    "cpuset": "CpuSet",
    "errors": "LaunchError MachineError MaskError OmpbindError PlanError RequestError",
    "launch.claims": "look_around",
    "launch.worker": "make_environment placed",
    "libraries": "OmpRuntime",
    "machine.programs": "read_workload",
    "machine.sources": "read_machine",
    "mask": "Mask parse_mask",
    "placement": "Placement Plan",
    "plan": "make_plan",
    "request": "Bind Memory ProcBind Request Sharing",
    "topology": "Level Machine",
    "workload": "Workload",
}
"""The modules in which the names above are made."""


if not TYPE_CHECKING:  # for checkers it would mean that every name is there

    def __getattr__(name: str) -> object:
        home = next((module for module, names in _HOMES.items() if name in names.split()), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
