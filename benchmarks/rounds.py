"""What every benchmark does first: ask how often to measure, and compile the modules, as users have them."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows a benchmark's own words as they are."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def compile_modules() -> None:
    """Compile ompbind, and let processes that are started do so."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "ompbind")], check=True)


def read_rounds(description: str | None, default: int) -> int:
    """Return --rounds of the command line, with ompbind compiled."""
    parser = make_parser(description)
    parser.add_argument("--rounds", type=int, default=default)
    rounds: int = parser.parse_args().rounds
    compile_modules()
    return rounds


def counts(text: str) -> tuple[int, ...]:
    """Return numbers of ranks from "1,2,16", in order; ValueError for anything else."""
    numbers = tuple(sorted({int(word) for word in text.split(",")}))
    if numbers[0] < 1:
        raise ValueError(text)
    return numbers


def names(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads "a,b": names that are known; ArgumentTypeError tells the others."""
    there = tuple(known)

    def read(text: str) -> tuple[str, ...]:
        wanted = tuple(text.split(","))
        unknown = sorted(set(wanted) - set(there))
        if unknown:
            raise argparse.ArgumentTypeError(
                f"nothing is called {', '.join(unknown)}: there are {', '.join(there)}"
            )
        return wanted

    return read
