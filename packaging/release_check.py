"""Build all that a release consists of, install it in a clean environment, and try it.

    python packaging/release_check.py [--release] [--step NAME]…

Without `--release` this is a rehearsal: what only a release needs (an address of the project, a clean tree, a
section with a date in CHANGELOG.md) is shown and does not fail. With it, each of these is an error. The first
error stops the check. The builds are in dist/.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ompbind import __version__
from ompbind.record import Record

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
GENERATED = ("CITATION.cff", "docs/ompbind.1")
"""Files with the version and the day of its release; `make docs` writes them."""

SECTION = re.compile(r"^## \[?([^]\s]+)\]?(?: - (\d{4}-\d\d-\d\d))?\n", re.M)
"""A heading of CHANGELOG.md: a version, and the date of its release."""

BESIDE_PACKAGE = re.compile(
    r"ompbind-[^/]*\.(dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)"
    r"|data/data/share/man/man1/ompbind\.1)"
)
"""The other files of a wheel: about the package, with its command, and the man page."""


class ReleaseError(Exception):
    """A step that fails: what is wrong, and what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(f"{problem}\n  hint: {hint}")


class ChangelogSection(Record):
    """A section of CHANGELOG.md. `date` is "" before the release."""

    version: str
    date: str
    text: str


class Check(Record):
    """What a step needs to know: an empty directory, and whether this is more than a rehearsal."""

    scratch: Path
    is_release: bool

    def demand(self, problem: str, hint: str) -> str:
        """Fail before a release; in a rehearsal, return what a release will need."""
        if self.is_release:
            raise ReleaseError(problem, hint)
        return f"a release needs more: {problem}"


Step = Callable[[Check], str]
"""Does one part of the check and returns a remark, or raises ReleaseError."""


def run_tool(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command and return its standard output; a failure is an error with its last lines."""
    done = subprocess.run(command, cwd=cwd, env=env, text=True, capture_output=True, check=False)
    if done.returncode:
        last = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-15:])
        line = " ".join(map(str, command))
        raise ReleaseError(f"{line} exited with code {done.returncode}:\n{last}", f"run it in {cwd}")
    return done.stdout


def read_sections(text: str) -> tuple[ChangelogSection, ...]:
    """Return the sections of a changelog, in the order of the file."""
    _, *parts = SECTION.split(text)
    rows = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return tuple(
        ChangelogSection(version=name, date=date or "", text=body.strip()) for name, date, body in rows
    )


def read_hatch() -> dict[str, Any]:
    """Return how pyproject.toml configures builds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    settings: dict[str, Any] = project["tool"]["hatch"]
    return settings


def check_version(check: Check) -> str:
    """The version is the same everywhere, and CHANGELOG.md describes it."""
    newest = read_sections((ROOT / "CHANGELOG.md").read_text())[0]
    if not newest.text:
        raise ReleaseError(f"the section {newest.version} of CHANGELOG.md is empty", "describe the changes")
    is_released = newest.version == __version__ and newest.date
    for name in GENERATED:
        text = (ROOT / name).read_text()
        lacking = [word for word in (__version__, is_released and newest.date) if word and word not in text]
        if lacking:
            raise ReleaseError(f"{name} does not contain {lacking[0]}", "run 'make docs'")
    if is_released:
        return f"{__version__} of {newest.date}"
    problem = f"CHANGELOG.md has no section '## [{__version__}] - YYYY-MM-DD'"
    return check.demand(problem, "rename the section Unreleased")


def check_address(check: Check) -> str:
    """The project has an address, so that links of README work in an index."""
    address = read_hatch()["metadata"]["hooks"]["custom"]["repository"]
    if re.fullmatch(r"https://[\w.-]+/\S*[^/\s]", address):
        return str(address)
    return check.demand("the project has no address", "set 'repository' in pyproject.toml")


def check_tree(check: Check) -> str:
    """All files are committed."""
    changed = run_tool("git", "status", "--porcelain").splitlines()
    if not changed:
        return "clean"
    return check.demand(f"{len(changed)} files are not committed, such as {changed[0][3:]}", "commit them")


def build(check: Check) -> str:
    """Build wheel and sdist twice: both results are the same bytes."""
    moment = run_tool("git", "log", "-1", "--format=%ct").strip()
    env = {**os.environ, "SOURCE_DATE_EPOCH": moment}
    run_tool("make", "dist", env=env)
    second = check.scratch / "again"
    run_tool(sys.executable, "-m", "build", "--quiet", "--outdir", second, env=env)
    names = [path.name for path in find_builds()]
    if sorted(path.name for path in second.iterdir()) != names:
        raise ReleaseError(f"dist/ has {names}, expected a wheel and an sdist", "remove dist/")
    differing = [name for name in names if digest(DIST / name) != digest(second / name)]
    if differing:
        raise ReleaseError(f"two builds of {differing[0]} differ", "compare them with diffoscope")
    return ", ".join(f"{name} ({(DIST / name).stat().st_size // 1024} KiB)" for name in names)


def find_builds() -> list[Path]:
    """Return the wheel and the sdist in dist/, by name."""
    return sorted((*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")))


def digest(path: Path) -> str:
    """Return the SHA-256 sum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_metadata(_: Check) -> str:
    """An index accepts the files, and CITATION.cff is valid."""
    run_tool(sys.executable, "-m", "twine", "check", "--strict", *find_builds())
    run_tool(Path(sys.executable).with_name("cffconvert"), "--validate")
    return "accepted by twine and cffconvert"


def check_contents(_: Check) -> str:
    """The wheel has the tracked files of the package, and the pages; the sdist has all tracked files."""
    tracked = run_tool("git", "ls-files").splitlines()
    wheel, sdist = find_builds()
    in_wheel, in_sdist = read_wheel(wheel), read_sdist(sdist)
    installed = (re.sub(r"^docs/(?=[^/]*\.md$|schemas/)", "ompbind/pages/", name) for name in tracked)
    compare("wheel", in_wheel, {name for name in installed if name.startswith("ompbind/")})
    compare("sdist", in_sdist, {*tracked, "PKG-INFO"})
    return f"{len(in_wheel)} and {len(in_sdist)} files"


def read_wheel(path: Path) -> set[str]:
    """Return the files of a wheel that are not known to lie beside the package."""
    with zipfile.ZipFile(path) as wheel:
        return {name for name in wheel.namelist() if not BESIDE_PACKAGE.fullmatch(name)}


def read_sdist(path: Path) -> set[str]:
    """Return the files of an sdist, without its directory."""
    with tarfile.open(path) as sdist:
        return {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}


def compare(kind: str, found: set[str], expected: set[str]) -> None:
    """Fail if files are missing or too many."""
    for names, verb in ((expected - found, "lacks"), (found - expected, "contains")):
        if names:
            first = sorted(names)[0]
            raise ReleaseError(f"the {kind} {verb} {first}", "see [tool.hatch.build] in pyproject.toml")


def check_installation(check: Check) -> str:
    """The wheel works in a clean environment, away from the repository."""
    place = check.scratch / "environment"
    run_tool(sys.executable, "-m", "venv", place)
    run_tool(place / "bin/python", "-m", "pip", "install", "--quiet", *DIST.glob("*.whl"))
    if not list(place.glob("share/man/man1/ompbind.1")):
        raise ReleaseError("the wheel has no manual page", "see shared-data in pyproject.toml")
    return try_commands([place / "bin/ompbind"], check.scratch)


def try_commands(ompbind: Sequence[str | Path], directory: Path) -> str:
    """Run each kind of command once in a directory; return which."""
    env = {"PATH": os.defpath, "HOME": str(directory), "OMPBIND_RUNTIME_DIR": str(directory)}
    for words in ("plan -n 1", "run -n 1 -- true", "exec -- true", "topo", "config", "help tutorial"):
        run_tool(*ompbind, *words.split(), cwd=directory, env=env)
    shown = run_tool(*ompbind, "--version", cwd=directory, env=env).split()
    if __version__ not in shown:
        raise ReleaseError(f"--version prints {shown}, expected {__version__}", "build again")
    return "plan, run, exec, topo"


def check_zip(check: Check) -> str:
    """The single file works with Python alone."""
    run_tool("make", "zipapp")
    return try_commands([sys.executable, "-I", "-S", DIST / "ompbind.pyz"], check.scratch)


def check_site(_: Check) -> str:
    """The documentation site builds."""
    run_tool("make", "site")
    return "site/"


STEPS: dict[str, Step] = {
    "version": check_version,
    "address": check_address,
    "tree": check_tree,
    "build": build,
    "metadata": check_metadata,
    "contents": check_contents,
    "installation": check_installation,
    "zipapp": check_zip,
    "site": check_site,
}


def run_steps(check: Check, names: list[str]) -> None:
    """Run steps and print a line for each; stop at the first error."""
    for name in names:
        begun = time.monotonic()
        print(f"{name:13}", end="", flush=True)
        remark = STEPS[name](check)
        print(f"{time.monotonic() - begun:6.1f} s  {remark}", flush=True)


def main() -> int:
    """Return 0 if everything is ready, 1 after the first error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--release", action="store_true", help="also demand what only a release needs")
    parser.add_argument("--step", action="append", choices=STEPS, help="do only this step")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run_steps(Check(scratch=Path(scratch), is_release=args.release), args.step or list(STEPS))
        except ReleaseError as error:
            print(f"failed\nrelease_check: error: {error}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
