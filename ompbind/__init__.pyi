from ompbind.cpuset import CpuSet
from ompbind.errors import LaunchError, MachineError, MaskError, OmpbindError, PlanError, RequestError
from ompbind.machine.devices import DeviceKind
from ompbind.machine.model import Level, Machine
from ompbind.machine.read import read_machine
from ompbind.masks.mask import Mask, parse_mask
from ompbind.openmp.binding import Bind, ProcBind
from ompbind.openmp.runtimes import OmpRuntime
from ompbind.planning.devices.visible import find_visible_devices
from ompbind.planning.plan import Placement, Plan
from ompbind.planning.planner import make_plan
from ompbind.planning.request import MemoryMode, Request, Sharing
from ompbind.programs.command import Workload, read_workload
from ompbind.registry.registry import read_occupied
from ompbind.workers.bind_process import ProcessBinding, bind_process, unbind
from ompbind.workers.placed import make_environment, placed, read_compat

__all__ = [
    "Bind",
    "CpuSet",
    "DeviceKind",
    "LaunchError",
    "Level",
    "Machine",
    "MachineError",
    "Mask",
    "MaskError",
    "MemoryMode",
    "OmpRuntime",
    "OmpbindError",
    "Placement",
    "Plan",
    "PlanError",
    "ProcBind",
    "ProcessBinding",
    "Request",
    "RequestError",
    "Sharing",
    "Workload",
    "__version__",
    "bind_process",
    "find_visible_devices",
    "make_environment",
    "make_plan",
    "parse_mask",
    "placed",
    "read_compat",
    "read_machine",
    "read_occupied",
    "read_workload",
    "unbind",
]

__version__: str
