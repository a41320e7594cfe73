"""Read the CPU variables of a framework as planning options, and replace them in the environment of ranks.

An option of ompbind overrides the setting of a framework (`settings`) for the same thing. In a rank, the
framework would read its variables and bind threads again: so some variables are removed, and the variable
that binds gets a value with which the framework keeps the CPUs of the rank.
"""

from collections.abc import Collection, Iterator, Mapping

from ompbind.compat.frameworks import FRAMEWORKS, FrameworkInput, count_own_workers, count_workers
from ompbind.compat.settings import ForeignSetting, make_foreign_settings
from ompbind.cpuset import count
from ompbind.masks.mask import MaskWord
from ompbind.openmp.binding import Bind
from ompbind.openmp.runtimes import KMP_READERS
from ompbind.planning.request import Compat, Request
from ompbind.programs.libraries import DetectionMethod


def fill_request(
    request: Request, framework: str, source: FrameworkInput, given: Collection[str] = ()
) -> Request:
    """Return the request with the settings of a framework, except where an option is `given`."""
    names = FRAMEWORKS[framework]
    read: list[str] = []
    others: list[str] = []
    warnings: list[str] = []
    for setting in make_foreign_settings(names, source):
        reason = _find_objection(setting, request, given)
        fields = {name: value for name, value in setting.request_fields.items() if name not in given}
        request = request if reason else request.replace(**fields)
        shown = [f"{_OPTIONS[name]} {value}" for name, value in fields.items() if value and name in _OPTIONS]
        meaning = setting.meaning + (f" ({' '.join(shown)})" if shown else "")
        if not setting.value:
            others += [] if reason or not setting.meaning else [f"{setting.name} is not set: {meaning}"]
        elif reason:
            others.append(f"{setting.name}={setting.value} is not used: {reason}")
        else:
            read.append(f"{setting.name}={setting.value} is read as {meaning}")
            warnings += [setting.warning] if setting.warning else []
    others.extend(names.explain(source, request))
    warnings.extend(_explain_workers(framework, source, request))
    others.append(names.effect)
    variables: tuple[tuple[str, str], ...] = ()
    if request.workload and request.workload.has(*KMP_READERS, method=DetectionMethod.PRELOADED):
        variables = names.kmp_variables
    if variables:
        values = " and ".join(f"{name}={value}" for name, value in variables)
        others.append(f"ranks get {values} unless you set them, as {names.title} does for this runtime")
    lists = len(request.mask.parts) if request.mask else 0
    hint = ""  # what to do if the CPU lists are for the workers of one server
    if "mask" not in given and names.workers and lists > 1:
        server = f"{names.workers} {lists}"
        hint = f"for one server with {lists} workers ({server}), {_render_remedy(framework, lists)}"
        hint += f"; for {lists} servers, use -n {lists}"
    compat = Compat(
        framework=framework,
        read=tuple(read),
        others=tuple(others),
        warnings=tuple(warnings),
        divided=names.divided,
        workers=hint,
        variables=variables,
    )
    return request.replace(compat=compat)


def find_hidden_variables(framework: str) -> tuple[str, ...]:
    """Return the variables of a framework that are removed from ranks."""
    names = FRAMEWORKS[framework]
    hidden = (names.bind, names.reserve, names.nodes, names.slices, *names.others)
    return tuple(name for name in hidden if name)


def make_rank_variables(framework: str) -> tuple[tuple[str, str], ...]:
    """Return the (NAME, value) pairs that are set in ranks; values may have fields such as {cpus}."""
    names = FRAMEWORKS[framework]
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


def _explain_workers(framework: str, source: FrameworkInput, request: Request) -> Iterator[str]:
    """Yield a warning if the command is a server that starts several workers, and ranks are bound.

    If the plan is for the workers of a server, yield a warning if their number is not the number of ranks.
    """
    names = FRAMEWORKS[framework]
    workers = count_workers(names, source.command)
    if count_own_workers(names, source) > 1 or workers == 1 or request.is_unbound:
        return
    if not source.for_workers:
        remedy = _render_remedy(framework, workers)
        if names.plugin:
            remedy += f", or set {names.plugin}=1 if ompbind is installed beside {names.title}"
        yield f"each server starts {workers} workers, and a rank has the CPUs of one worker; {remedy}"
    elif request.ranks not in (None, workers):
        lists = count(request.ranks or 0, "CPU list")
        yield f"the server starts {workers} workers, and the plan has {lists}; use -n {workers}"


def _render_remedy(framework: str, workers: int) -> str:
    plan = f"ompbind plan -n {workers} --compat {framework} --format {framework}"
    return f'use eval "$({plan})" instead of ompbind run'
