"""Put faults into a copy of the package one by one, and show whether a related test catches each.

`python tests/mutants.py` tries all rows of mutants.toml, `python tests/mutants.py masks signal` those that
contain one of these words. The exit code is 1 if an important row is missed, or more than 1 in 20 of all.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
IMPORTANT = tuple(f"ompbind/{room}/" for room in ("planning", "masks", "execution", "registry"))
"""A missed fault in one of these rooms is an error."""
PATIENCE = 20
"""With a fault, tests may take this many times as long as without it, and a minute more."""


class Fault(NamedTuple):
    """A row of the table: `old`, which occurs once in `file`, becomes `new`, and one of `tests` fails."""

    file: str
    fault: str
    tests: str
    old: str
    new: str


def read_faults() -> list[Fault]:
    """Read the table. Exits with an error if a text does not occur once in its file."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    faults = [Fault(file, *row) for file, table in tables.items() for row in table["faults"]]
    for fault in faults:
        if (found := (ROOT / fault.file).read_text().count(fault.old)) != 1:
            sys.exit(f"{fault.file}: {fault.old!r} occurs {found} times; mutants.toml expects it once")
    return faults


def run_tests(copy: Path, tests: str, timeout_s: float) -> str:
    """Run some tests with the package of the copy, and return "passed", "caught", or what went wrong."""
    options = "-x -q --tb=line -p no:cacheprovider"
    command = [sys.executable, "-m", "pytest", *options.split(), *tests.split()]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("OMPTEST_ALL", None)
    try:
        done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"no end within {timeout_s:.0f} s"
    return {0: "passed", 1: "caught"}.get(done.returncode, f"pytest: {done.stdout}{done.stderr}")


def try_fault(copy: Path, fault: Fault, timeout_s: float) -> str:
    """Put a fault in, run its tests, take the fault out, and return the result."""
    path = copy / fault.file
    text = path.read_text()
    path.write_text(text.replace(fault.old, fault.new))
    try:
        result = run_tests(copy, fault.tests, timeout_s)
    finally:
        path.write_text(text)
    return "MISSED" if result == "passed" else result


def main() -> None:
    """Try the faults, and print a line for each. Tests that fail without a fault are errors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD", help="try only rows that contain a WORD")
    parser.add_argument("--list", action="store_true", help="list rows, run nothing")
    options = parser.parse_args()
    faults = [
        fault
        for fault in read_faults()
        if not options.words or any(word in str(fault) for word in options.words)
    ]
    if options.list:
        print(*(f"{fault.file}: {fault.fault}" for fault in faults), sep="\n")
        return
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, "copy")
        ignored = shutil.ignore_patterns(".git", ".venv", "site", "dist", "__pycache__", ".*_cache")
        shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
        (copy / ".venv").symlink_to(ROOT / ".venv")
        took: dict[str, float] = {}
        missed = []
        for fault in faults:
            if fault.tests not in took:
                begun = time.monotonic()
                if (result := run_tests(copy, fault.tests, 600)) != "passed":
                    sys.exit(f"without a fault, {fault.tests} did not pass: {result}")
                took[fault.tests] = time.monotonic() - begun
            result = try_fault(copy, fault, 60 + PATIENCE * took[fault.tests])
            print(f"{fault.file}: {fault.fault}: {result}", flush=True)
            if result != "caught":
                missed.append(fault)
    print(f"\n{len(faults) - len(missed)} of {len(faults)} caught")
    sys.exit(len(missed) * 20 > len(faults) or any(fault.file.startswith(IMPORTANT) for fault in missed))


if __name__ == "__main__":
    main()
