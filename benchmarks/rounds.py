"""Options that all benchmarks share, and the compilation of modules, which users have compiled too."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that prints the benchmark's docstring unchanged."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def compile_modules() -> None:
    """Compile the modules of ompbind, and allow child processes to write compiled modules."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "ompbind")], check=True)


def read_rounds(description: str | None, default: int) -> int:
    """Compile the modules and return the option --rounds."""
    parser = make_parser(description)
    parser.add_argument("--rounds", type=int, default=default)
    rounds: int = parser.parse_args().rounds
    compile_modules()
    return rounds


def parse_counts(text: str) -> tuple[int, ...]:
    """Return the numbers of ranks in "1,2,16", sorted. Raises ValueError for other text."""
    numbers = tuple(sorted({int(word) for word in text.split(",")}))
    if numbers[0] < 1:
        raise ValueError(text)
    return numbers


def make_name_parser(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of "a,b" that raises ArgumentTypeError for unknown names."""
    known_names = tuple(known)

    def read(text: str) -> tuple[str, ...]:
        wanted = tuple(text.split(","))
        unknown = sorted(set(wanted) - set(known_names))
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; known are {', '.join(known_names)}"
            )
        return wanted

    return read
