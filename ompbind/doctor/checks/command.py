"""Checks of `ompbind doctor`: what a command would run, its wrappers, runtimes and preloads."""

from collections.abc import Iterator

from ompbind.doctor.facts import HostFacts, HostIssue, error, note, ok
from ompbind.openmp.runtimes import OmpRuntime, find_aborting_pair
from ompbind.planning.wrapper_notes import find_effects
from ompbind.programs.library_catalog import LIBRARY_KINDS, LIBRARY_PACKAGES, DetectedLibrary, DetectionMethod

_ALLOCATION = "torch operations that allocate large tensors take longer with the allocator of glibc"
_EXPECTED = {"tcmalloc": _ALLOCATION, OmpRuntime.INTEL.facts.library: OmpRuntime.INTEL.facts.preload_benefit}
"""The libraries that vLLM's CPU workers expect, and why programs are faster with them."""


def check_command(host: HostFacts) -> Iterator[HostIssue]:
    """Report what a command would run, or why it cannot run."""
    command, work = host.command, host.workload
    if command is None:
        return
    name, arch = command.argv[0], host.machine.arch if host.machine else ""
    if command.error:
        yield error("command", command.error, "no rank can be started", command.hint or "give its path")
    elif not work.program:
        yield ok("command", f"runs {name}, and ompbind cannot see what that program starts")
    elif command.arch and arch and not _runs_on(command.arch, arch):
        found = f"{work.program} is for {command.arch}"
        why = f"this machine is {arch}: the program runs only if an emulator is registered"
        yield note("command", found, why, f"use a program that is built for {arch}")
    else:
        python = ""
        if command.python:
            version = ".".join(map(str, command.python))
            isolated = ", isolated" if command.isolated else ""
            python = f" (Python {version}{isolated}; packages in {work.site_packages or 'none'})"
        yield ok("command", f"runs {work.program}{python}")


def _runs_on(arch: str, machine: str) -> bool:
    """Return whether a program for `arch` runs on `machine`; a machine of 64 bits mostly runs 32 bits too."""
    return arch == machine or (machine, arch) in (
        ("x86_64", "i386"), ("x86_64", "x32"), ("aarch64", "arm"), ("ppc64", "ppc"), ("armv7l", "arm"),
        ("i686", "i386"), ("i586", "i386"), ("armv8l", "arm"), ("mips64", "mips"),
    ) or machine in ("unknown", "")  # fmt: skip


def check_wrappers(host: HostFacts) -> Iterator[HostIssue]:
    """Look for programs before the command that undo what ompbind does for a rank."""
    effects = list(find_effects(host.workload))
    for found in effects:
        yield note("wrapper", f"the command has '{found.words}'", f"it {found.effect}", found.remedy)
    if host.command is not None and not effects:
        yield ok("wrapper", "none that undoes a binding")


def check_runtimes(host: HostFacts) -> Iterator[HostIssue]:
    """Look for OpenMP runtimes that conflict in one process."""
    runtimes = list(host.workload.runtimes())
    if not runtimes:
        if host.workload.static:
            yield ok("OpenMP runtimes", f"not known: {host.workload.program} is statically linked")
        elif host.command is not None and not host.workload.opaque and host.workload.program:
            yield ok("OpenMP runtimes", "none found")
        return
    issues = [*_check_abort(runtimes), *_check_initial_thread(runtimes), *_check_fork(runtimes)]
    yield from issues or [ok("OpenMP runtimes", ", ".join(map(_render_library, runtimes)))]


def _render_library(detected: DetectedLibrary) -> str:
    library = detected.library
    version = f" {library.version}" if library.version else ""
    return f"{library.kind.label}{version} ({detected.method}: {detected.origin})"


def _check_abort(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    """Look for two runtimes that cannot run in one process: the second to start aborts it."""
    aborting = find_aborting_pair({runtime.library.family for runtime in runtimes})
    if aborting is None:
        return
    *families, message = aborting
    pair = [next(found for found in runtimes if found.library.family is family) for family in families]
    both_load = all(runtime.method is not DetectionMethod.AVAILABLE for runtime in pair)
    make_issue = error if both_load else note
    why = f"if a process starts both, the second runtime aborts it ({message})"
    remedy = "use only one: preload none, or the runtime that the program needs"
    yield make_issue("OpenMP runtimes", " and ".join(map(_render_library, pair)), why, remedy)


def _check_initial_thread(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    """Look for several runtimes if one of them shrinks the initial thread's affinity mask at load."""
    families = (runtime.library.family for runtime in runtimes)
    narrowing = next((family for family in families if family and family.facts.narrows_at_load), None)
    if len(runtimes) < 2 or not narrowing:
        return
    why = (
        f"when {narrowing.label} is loaded, it shrinks the initial thread's affinity mask to the first place;"
        " if places are single CPUs, all threads of another runtime run on that CPU"
    )
    remedy = "use --bind rank (the default; one place with all CPUs of the rank), not --bind exact"
    yield note("OpenMP runtimes", f"several: {', '.join(map(_render_library, runtimes))}", why, remedy)


def _check_fork(runtimes: list[DetectedLibrary]) -> Iterator[HostIssue]:
    """Look for a runtime whose forked children crash when it has places."""
    for runtime in runtimes:
        family = runtime.library.family
        if family is None or family.forks_safely(runtime.library.version):
            continue
        since = family.render_version(family.facts.forks_safely_from)
        why = f"its forked child processes crash if OMP_PLACES names CPUs (before {since})"
        remedy = "use --bind rank (the default) or none, which set no places for it, or a newer"
        yield note("OpenMP runtimes", _render_library(runtime), why, f"{remedy} {family.label}")
        return


def check_preloadable(host: HostFacts) -> Iterator[HostIssue]:
    """Report which libraries can be preloaded, and which of them the command expects."""
    preloaded = (found for found in host.workload.libraries if found.method is DetectionMethod.PRELOADED)
    loaded = {found.library.kind.name for found in preloaded}
    expected = _find_expected(host)
    for name, path in host.preloadable:
        label = LIBRARY_KINDS[name].label
        if name in loaded:
            yield ok(label, "is preloaded")
        elif name in expected:
            why = f"vLLM's CPU workers expect it: {_EXPECTED[name]}"
            if path:
                yield note(label, "is not preloaded", why, f"use --preload {name} ({path})")
            else:
                remedy = f"install {LIBRARY_PACKAGES[name]} and use --preload {name}"
                yield note(label, "is not installed", why, remedy)
        elif path:
            yield ok(label, f"{path} (--preload {name})")
    others = [(name, path) for name, path in host.preloadable if name not in {*loaded, *expected}]
    missing = [LIBRARY_KINDS[name].label for name, path in others if not path]
    if missing:
        yield ok("preloadable libraries", f"not found: {', '.join(missing)}")


def _find_expected(host: HostFacts) -> set[str]:
    """Return the libraries that the command expects to be preloaded and that exist for this architecture."""
    if host.command is None or "vllm" not in {package.name for package in host.command.packages}:
        return set()
    arch = host.machine.arch if host.machine else ""
    families = {name: LIBRARY_KINDS[name].family for name in _EXPECTED}
    return {name for name, family in families.items() if family is None or family.runs_on(arch)}
