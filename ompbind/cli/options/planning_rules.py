"""The rules of planning options: when an option has no effect, because of another option.

`--mask none` is the same as `--strategy all --smt all --bind none`, so these are no objection.
"""

from __future__ import annotations

from ompbind.cli.options.objection import CONTRADICT, Objection
from ompbind.cli.options.option import BINDING, CPUS, DEVICES, Options
from ompbind.cli.options.planning import PLANNING_OPTIONS
from ompbind.masks.mask import MaskWord
from ompbind.openmp.binding import Bind
from ompbind.planning.strategies.table import list_others_that_take_cores, list_others_that_take_devices


def _is_unbound(options: Options) -> bool:
    """Return whether the mask is `none`: every rank may use all CPUs, and its threads are not bound."""
    return options["mask"] is not None and options["mask"].word is MaskWord.NONE


def _names_cpus(options: Options) -> bool:
    return options["mask"] is not None and options["mask"].word is None


def check_strategy(options: Options) -> Objection | None:
    """Object to a strategy if other options leave nothing to divide, or name other strategies."""
    if options.get("compare"):
        return Objection(other="compare", hint="name the strategies with --compare alone")
    if options["mask"] is not None and len(options["mask"].parts) > 1:
        hint = "the mask names the CPUs of each rank; a strategy divides a mask without '|'"
        return Objection(other="mask", hint=hint)
    if _is_unbound(options):
        return Objection(other="mask") if options["strategy"] != "all" else None
    usable = list_others_that_take_devices(options["strategy"]) if options["devices"] else ""
    hint = f"use {usable}; ranks get CPUs near their devices"
    return Objection(other="devices", text=CONTRADICT, hint=hint) if usable else None


def check_smt(options: Options) -> Objection | None:
    """Object to a number of hardware threads where the mask decides it."""
    if _is_unbound(options):
        return None if options["smt"] == "all" else Objection(other="mask")
    if options["smt"] == "all" and _names_cpus(options):
        text = "has no effect with {other}: ranks get all CPUs that a mask names"
        return Objection(other="mask", text=text, warning=True)
    return None


def check_sibling(options: Options) -> Objection | None:
    """Object to a choice of hardware threads where all are used."""
    if _is_unbound(options):
        return Objection(other="mask")
    if options["smt"] == "all":
        return Objection(other="smt", warning=True)
    if options["smt"] == "auto" and _names_cpus(options):
        text = "has no effect with {other}: ranks get all CPUs that a mask names, unless --smt limits them"
        return Objection(other="mask", text=text, warning=True)
    return None


def check_cores(options: Options) -> Objection | None:
    """Object to a number of cores which the mask or the strategy decides."""
    if _is_unbound(options):
        return Objection(other="mask")
    if options["mask"] is not None and len(options["mask"].parts) > 1:
        hint = "the mask names the CPUs of each rank; a strategy divides a mask without '|'"
        return Objection(other="mask", hint=hint)
    usable = "" if options.get("compare") else list_others_that_take_cores(options["strategy"])
    return Objection(other="strategy", hint=f"use {usable}") if usable else None


def check_service_cores(options: Options) -> Objection | None:
    """Object to service cores if the initial thread, and all that it creates, has only one CPU."""
    text = "has no effect with {other}: only threads that are not bound could use these CPUs"
    hint = "use --bind thread: it binds all OpenMP threads except the initial thread"
    return Objection(other="bind", text=text, hint=hint) if options["bind"] is Bind.EXACT else None


def check_service_total(options: Options) -> Objection | None:
    """Object to service CPUs if ranks are not bound, or if no thread could use them."""
    return Objection(other="mask") if _is_unbound(options) else check_service_cores(options)


def check_reserve_total(options: Options) -> Objection | None:
    """Object to cores of the machine if cores of each rank are reserved."""
    hint = "use --reserve for cores per rank, or --reserve-total for cores of the whole machine"
    return Objection(other="reserve", text=CONTRADICT, hint=hint) if options["reserve"] else None


def check_wait(options: Options) -> Objection | None:
    """Object to --wait if no other run can prevent the start, or if nothing starts."""
    if not (options["avoid"] or options["exclusive"]):
        hint = "add --exclusive (no other run on the CPUs) or --avoid (other CPUs if some are free)"
        return Objection(other="exclusive", text="needs --avoid or --exclusive", hint=hint)
    return Objection(other="dry_run", warning=True) if options["dry_run"] else None


def check_allow_partial(options: Options) -> Objection | None:
    """Object to --allow-partial without a mask that names CPUs."""
    if _names_cpus(options) or options["compat"]:
        return None
    text = "has no effect with {other}" if options["mask"] else "has no effect without --mask"
    return Objection(other="mask", text=text, warning=True)


def check_bind(options: Options) -> Objection | None:
    """Object to a binding mode if ranks are not bound."""
    binds = _is_unbound(options) and options["bind"] != Bind.NONE
    return Objection(other="mask", text=CONTRADICT) if binds else None


def check_proc_bind(options: Options) -> Objection | None:
    """Object to a distribution over places if there are not several places."""
    if _is_unbound(options):
        return Objection(other="mask")
    if options["bind"] in (Bind.RANK, Bind.NONE):
        hint = "use --bind core, thread or exact, which make several places"
        return Objection(other="bind", hint=hint)
    return None


def check_omp_runtime(options: Options) -> Objection | None:
    """Object where threads are not bound, so that it does not matter which runtime has to bind them."""
    if _is_unbound(options):
        return Objection(other="mask", warning=True)
    return Objection(other="bind", warning=True) if options["bind"] == Bind.NONE else None


def check_has_devices(options: Options) -> Objection | None:
    """Object to an option about devices if ranks get none."""
    if options["devices"]:
        return None
    return Objection(other="devices", text="has no effect without --devices", hint="add --devices gpu")


def check_nic_variables(options: Options) -> Objection | None:
    """Object to variables for network interfaces if ranks get none."""
    saved = options.get("plan")
    if "nic" in (saved.device_kinds if saved else options["devices"]):
        return None
    return Objection(other="devices", text="needs --devices nic", hint="use --devices nic or gpu,nic")


_BESIDE_PLAN = (
    "ranks", "plan", "topology", "share", "exclusive", "wait", "strict", "omp_runtime", "nic_variables",
)  # fmt: skip
"""Options of the sections about CPUs, devices and binding that have an effect with --plan too."""


def check_plan(options: Options) -> Objection | None:
    """Object to a plan that was made before if another option would decide what it has."""
    if options.get("compare"):
        return Objection(
            other="compare", text="cannot be used with {other}", hint="compare strategies without it"
        )
    deciding = (option for option in PLANNING_OPTIONS if option.section in (CPUS, DEVICES, BINDING))
    for option in deciding:
        if option.name not in _BESIDE_PLAN and options[option.name] != option.default_value:
            hint = f"omit {option.long_name}, or give it to 'ompbind plan' when you make the plan"
            return Objection(other=option.name, text="cannot be used with {other}", hint=hint)
    return None
