"""`ompbind --version -v`: what a report of a fault needs, as lines `key: value`, without private names."""

import os
import platform
import pwd
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import distributions

import ompbind
from ompbind.bench.conditions import read_processor
from ompbind.cli.config_files import find_home, read_found_files
from ompbind.doctor.read_kernel import read_kernel
from ompbind.inspection.expectation import is_relevant
from ompbind.launchers.launchers import LAUNCHERS
from ompbind.machine.sources.linux.cgroup import read_versions
from ompbind.machine.sources.reading import read_machine
from ompbind.machine.sources.root import DirectoryRoot
from ompbind.planning.rank_variables import MASKED, is_secret, mask_word
from ompbind.probe.libraries import find_candidates
from ompbind.programs.library_search import find_library, linker_directories
from ompbind.report.machine_text import render_limits, render_summary

PACKAGES = ("click", "psutil", "rich", "tomlkit")  # the dependencies of ompbind
_ROOT = DirectoryRoot("/")


def render_version_report(env: Mapping[str, str]) -> str:
    """Return the lines of the report; if a value cannot be read, the reason is in its place."""
    lines = [f"ompbind: {ompbind.__version__}"]
    for key, read in READERS.items():
        try:
            values = list(read(env)) or ["none"]
        except Exception as error:  # noqa: BLE001 - the other lines are still worth reading
            values = [f"cannot be read: {type(error).__name__}: {error}"]
        lines += [f"{key}: {' '.join(value.split())}" for value in values]
    text, home = "\n".join(lines), find_home(env).rstrip("/")
    text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home else text
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = env.get("USER", "")
    for shown, private in (("USER", user), ("HOST", platform.node())):
        if len(private) > 1 and private != "root" and not private.isdecimal():
            text = re.sub(rf"(?<![\w.-]){re.escape(private)}(?![\w.-])", shown, text)
    return text


def _find_installation(_: Mapping[str, str]) -> Iterable[str]:
    archive = getattr(getattr(ompbind.__spec__, "loader", None), "archive", "")
    return [f"one file, {archive}" if archive else os.path.dirname(ompbind.__file__)]


def _list_packages() -> Iterable[str]:
    """Yield the packages that ompbind depends on; one without metadata, as in one file, is left out."""
    yield from (f"{found.name} {found.version}" for found in distributions() if found.name in PACKAGES)


def _read_system(env: Mapping[str, str]) -> Iterable[str]:
    kernel, versions = read_kernel(_ROOT), read_versions(_ROOT)
    yield from (platform.platform(), *(f"cgroups of version {number}" for number in versions))
    yield from filter(None, (kernel.container, kernel.hypervisor))


def _read_machine(env: Mapping[str, str]) -> Iterable[str]:
    machine = read_machine()
    yield f"{read_processor(_ROOT, machine.arch)}, {render_summary(machine)}"
    yield from (*render_limits(machine), *machine.remarks)


def _read_runtimes(env: Mapping[str, str]) -> Iterable[str]:
    directories = linker_directories(env)
    found = (name if "/" in name else find_library(name, None, directories) for name in find_candidates(env))
    return dict.fromkeys(path for path in found if path)


def _read_variables(env: Mapping[str, str]) -> Iterable[str]:
    """Yield the variables of ompbind and of thread pools; values that may be secret are masked."""
    for name in filter(is_relevant, sorted(env)):
        try:
            value = " ".join(map(mask_word, shlex.split(env[name]))) if "=" in env[name] else env[name]
        except ValueError:  # a quote is not closed
            value = MASKED
        yield f"{name}={MASKED if is_secret(name) else value}"


READERS: Mapping[str, Callable[[Mapping[str, str]], Iterable[str]]] = {
    "installation": _find_installation,
    "python": lambda _: [f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"],
    "packages": lambda _: filter(None, [", ".join(sorted(_list_packages()))]),
    "system": _read_system,
    "machine": _read_machine,
    "OpenMP runtime": _read_runtimes,
    "launcher": lambda env: (name for launcher in LAUNCHERS for name in launcher.needed if name in env),
    "variable": _read_variables,
    "configuration": lambda env: (f"{file.kind} file {file.path}" for file in read_found_files(env).read),
}
