"""`ompbind --version -v`: what a report of a fault needs, as lines `key: value`.

Each row of a table reads one subject. A reader that fails leaves the reason in the place of its value, so the
report never fails. The report has no name of the user or of the host, and no path of the home directory.
"""

import json
import os
import platform
import pwd
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import util
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version

import ompbind
from ompbind.bench.conditions import read_processor
from ompbind.cli.config_files import read_found_files
from ompbind.cli.config_search import find_home
from ompbind.doctor.facts import KernelFacts
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

Env = Mapping[str, str]

PACKAGES = ("click", "psutil", "rich", "tomlkit")
"""The packages that ompbind depends on."""


def render_version_report(env: Env) -> str:
    """Return the lines of the report."""
    lines = [f"{key}: {value}" for key, read in READERS for value in _read_values(read, env)]
    return _hide_private_words("\n".join([f"ompbind: {ompbind.__version__}", *lines]), env)


def _read_values(read: Callable[[Env], Iterable[str]], env: Env) -> list[str]:
    try:
        return [" ".join(value.split()) for value in read(env)] or ["none"]
    except Exception as error:  # noqa: BLE001 - the other lines are still worth reading
        return [f"cannot be read: {type(error).__name__}: {error}"]


def _read_installation(env: Env) -> Iterator[str]:
    """Yield how ompbind is installed, and where."""
    directory = os.path.dirname(os.path.abspath(ompbind.__file__))
    archive = getattr(getattr(ompbind.__spec__, "loader", None), "archive", "")
    found = _find_distribution()
    if archive:
        yield f"one file, {archive}"
    elif found is None:
        yield f"not installed, used from {directory}"
    else:
        address = json.loads(found.read_text("direct_url.json") or "{}")
        kind = "editable" if address.get("dir_info", {}).get("editable") else "wheel"
        installer = (found.read_text("INSTALLER") or "an unknown installer").strip()
        yield f"{kind}, installed by {installer}, in {directory}"


def _find_distribution() -> Distribution | None:
    try:
        return distribution("ompbind")
    except PackageNotFoundError:
        return None


def _read_python(env: Env) -> Iterator[str]:
    optimized = f", -{'O' * sys.flags.optimize}" if sys.flags.optimize else ""
    yield f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}{optimized}"


def _read_packages(env: Env) -> Iterator[str]:
    yield ", ".join(f"{name} {_find_version(name)}" for name in PACKAGES)


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version" if util.find_spec(package) else "not installed"


def _read_system(env: Env) -> Iterator[str]:
    """Yield kernel, C library and distribution."""
    yield f"{platform.system()} {platform.release()} {platform.machine()}"
    yield f"C library {' '.join(platform.libc_ver()).strip() or 'unknown'}"
    yield platform.freedesktop_os_release()["PRETTY_NAME"]


def _read_machine(env: Env) -> Iterator[str]:
    """Yield the processor, the size of the machine, its limits, and what could not be read."""
    machine = read_machine()
    yield f"{read_processor(DirectoryRoot('/'), machine.arch)}, {render_summary(machine)}"
    yield from ["all CPUs are allowed"] if machine.allowed == machine.online else []
    yield from render_limits(machine)
    yield from machine.remarks


def _read_cgroups(env: Env) -> Iterator[str]:
    yield from (f"version {number}" for number in read_versions(DirectoryRoot("/")))


def _read_container(env: Env) -> Iterator[str]:
    yield from filter(None, [_read_kernel().container])


def _read_hypervisor(env: Env) -> Iterator[str]:
    yield from filter(None, [_read_kernel().hypervisor])


def _read_kernel() -> KernelFacts:
    return read_kernel(DirectoryRoot("/"))


def _read_runtimes(env: Env) -> Iterator[str]:
    """Yield the OpenMP runtimes of the system and of the Python environment; nothing is loaded."""
    directories = linker_directories(env)
    found = (name if "/" in name else find_library(name, None, directories) for name in find_candidates(env))
    yield from dict.fromkeys(path for path in found if path)


def _read_launchers(env: Env) -> Iterator[str]:
    """Yield the launchers with variables in the environment, and the names of these variables."""
    for launcher in LAUNCHERS:
        local_size = launcher.local_size if isinstance(launcher.local_size, str) else ""
        known = dict.fromkeys((*launcher.needed, local_size, *launcher.run_id, launcher.mark))
        if names := [name for name in known if name and name in env]:
            yield f"{launcher.name}: {', '.join(names)}"


def _read_variables(env: Env) -> Iterator[str]:
    """Yield the variables of ompbind and of thread pools; secret values are masked."""
    for name in filter(is_relevant, sorted(env)):
        yield f"{name}={MASKED if is_secret(name) else _mask_words(env[name])}"


def _mask_words(value: str) -> str:
    """Return a value with secrets masked, as `TOKEN=…` of --env; all of it if a quote is not closed."""
    if "=" not in value:
        return value
    try:
        return " ".join(map(mask_word, shlex.split(value)))
    except ValueError:
        return MASKED


def _read_configuration(env: Env) -> Iterator[str]:
    """Yield the configuration files that are read, and the ignored files."""
    files = read_found_files(env)
    yield from (f"{file.kind} file {file.path}" for file in files.read)
    yield from (f"{file.kind} file {file.path}, ignored: {file.reason}" for file in files.ignored)


READERS: tuple[tuple[str, Callable[[Env], Iterable[str]]], ...] = (
    ("installation", _read_installation),
    ("python", _read_python),
    ("packages", _read_packages),
    ("system", _read_system),
    ("machine", _read_machine),
    ("cgroups", _read_cgroups),
    ("container", _read_container),
    ("virtual machine", _read_hypervisor),
    ("OpenMP runtime", _read_runtimes),
    ("launcher", _read_launchers),
    ("variable", _read_variables),
    ("configuration", _read_configuration),
)
"""The keys of the lines, and the functions that read their values."""


def _hide_private_words(text: str, env: Env) -> str:
    """Return a text with the home as ~, and with USER and HOST for the names of the user and the host."""
    home = find_home(env).rstrip("/")
    text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home else text
    for word, private in (("USER", _read_user(env)), ("HOST", platform.node())):
        if len(private) > 1 and private != "root":
            text = re.sub(rf"(?<![\w.-]){re.escape(private)}(?![\w.-])", word, text)
    return text


def _read_user(env: Env) -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return env.get("USER", "")
