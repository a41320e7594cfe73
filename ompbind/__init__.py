"""ompbind starts n copies of a command, each on its own CPUs, and configures thread pools to use these CPUs.

The names in `__all__` are the interface for Python programs; see `ompbind help python`. Importing the package
imports nothing else: each name is imported when it is first used. `__init__.pyi` has their types.
"""

__version__ = "0.1.0"

_HOMES = {
    "cpuset": "CpuSet",
    "errors": "LaunchError MachineError MaskError OmpbindError PlanError RequestError",
    "workers.bind_process": "ProcessBinding bind_process unbind",
    "workers.placed": "make_environment placed read_compat",
    "machine.devices": "DeviceKind",
    "machine.model": "Level Machine",
    "machine.read": "read_machine",
    "masks.mask": "Mask parse_mask",
    "openmp.binding": "Bind ProcBind",
    "openmp.runtimes": "OmpRuntime",
    "planning.devices.visible": "find_visible_devices",
    "planning.plan": "Placement Plan",
    "planning.planner": "make_plan",
    "planning.request": "MemoryMode Request Sharing",
    "programs.command": "Workload read_workload",
    "registry.registry": "read_occupied",
}
"""Module → the names that it defines."""

__all__ = sorted(("__version__", *" ".join(_HOMES.values()).split()))


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - door: the name that is used decides

    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
