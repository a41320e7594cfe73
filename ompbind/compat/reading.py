"""Read the CPU variables of a framework as planning options, and replace them in the environment of ranks.

An option of ompbind overrides the setting of a framework (`settings`) for the same thing. In a rank, the
framework would read its variables and bind threads again: so some variables are removed, and the variable
that binds gets a value with which the framework keeps the CPUs of the rank.
"""

from collections.abc import Collection, Mapping

from ompbind.compat.framework import FrameworkInput, explain_workers, load_framework, make_workers_hint
from ompbind.compat.settings import ForeignSetting, make_foreign_settings
from ompbind.masks.mask import MaskWord
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import KMP_READERS
from ompbind.planning.request import Compat, Request
from ompbind.programs.library_catalog import DetectionMethod


def fill_request(
    request: Request, framework: str, source: FrameworkInput, given: Collection[str] = ()
) -> Request:
    """Return the request with the settings of a framework, except where an option is `given`."""
    names = load_framework(framework)
    read: list[str] = []
    others: list[str] = []
    warnings: list[str] = []
    for setting in make_foreign_settings(framework, source):
        reason = _find_objection(setting, request, given)
        fields = {name: value for name, value in setting.request_fields.items() if name not in given}
        request = request if reason else request.replace(**fields)
        meaning = f"{setting.meaning}{_render_options(fields)}"
        if not setting.value:
            others += [] if reason or not setting.meaning else [f"{setting.name} is not set: {meaning}"]
        elif reason:
            others.append(f"{setting.name}={setting.value} is not used: {reason}")
        else:
            read.append(f"{setting.name}={setting.value} is read as {meaning}")
            warnings += [setting.warning] if setting.warning else []
    others.extend(names.explain(source, request))
    warnings.extend(explain_workers(framework, source, request))
    others.append(names.effect)
    variables = names.kmp_variables if _preloads_kmp(request) else ()
    if variables:
        values = " and ".join(f"{name}={value}" for name, value in variables)
        others.append(f"ranks get {values} unless you set them, as {names.title} does for this runtime")
    compat = Compat(
        framework=framework,
        read=tuple(read),
        others=tuple(others),
        warnings=tuple(warnings),
        divided=names.divided,
        workers="" if "mask" in given else make_workers_hint(framework, request),
        variables=variables,
    )
    return request.replace(compat=compat)


def find_hidden_variables(framework: str) -> tuple[str, ...]:
    """Return the variables of a framework that are removed from ranks."""
    names = load_framework(framework)
    hidden = (names.bind, names.reserve, names.nodes, names.slices, *names.others)
    return tuple(name for name in hidden if name)


def make_rank_variables(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the (NAME, value) pairs that are set in ranks; values may have fields such as {cpus}."""
    names = load_framework(framework)
    return ((names.bind, names.inside),)


def _find_objection(setting: ForeignSetting, request: Request, given: Collection[str]) -> str:
    """Return why a setting is not used, "" if it is used."""
    overriding = next((option for option in setting.overridden_by if option in given), None)
    if overriding:
        return f"--{overriding.replace('_', '-')} is given"
    if setting.objection:
        return setting.objection
    if setting.requires_binding and request.is_unbound:
        return "ranks are not bound"
    if setting.requires_no_mask and request.mask is not None and request.mask.word is not MaskWord.AUTO:
        return "the mask selects the CPUs"
    if "service_total" in setting.request_fields and request.bind is Bind.EXACT:
        return "--bind exact leaves no thread that could use service CPUs"
    return ""


_OPTIONS: Mapping[str, str] = {
    "strategy": "-s", "smt": "--smt", "sibling": "--sibling", "service_total": "--service-total",
}  # fmt: skip
"""The options for fields of a request that a note shows."""


def _render_options(fields: Mapping[str, object]) -> str:
    """Return the options that are the same as some fields of a request: " (-s nodes --smt 1)"."""
    options = " ".join(
        f"{_OPTIONS[name]} {value}" for name, value in fields.items() if value and name in _OPTIONS
    )
    return f" ({options})" if options else ""


def _preloads_kmp(request: Request) -> bool:
    """Return whether an OpenMP runtime that reads KMP variables is preloaded."""
    workload = request.workload
    return workload is not None and workload.has(*KMP_READERS, method=DetectionMethod.PRELOADED)
