"""Run benchmarks/scaling.py, and write its tables into docs/mpi-slurm.md.

    make scaling

Prints the sentences of the page that have numbers of the tables, to be checked by hand. Needs strace and an
idle machine; takes some minutes.
"""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "mpi-slurm.md"
BLOCK = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)
"""A table of the page."""


def fill_page(text: str, output: str) -> str:
    """Return a page with the tables of an output of the benchmark; raises ValueError if one is missing."""
    _, starts, one_rank, files, large_job = output.strip().split("\n\n")
    tables = iter((f"{starts}\n\n{one_rank}", files, large_job))
    return BLOCK.sub(lambda _: f"{next(tables)}\n", text)


def find_sentences(text: str) -> list[str]:
    """Return the lines outside blocks that have numbers with units, or of CPUs."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return [line for line in prose.splitlines() if re.search(r"\d (?:ms|CPU)|a third", line)]


def main() -> int:
    """Measure and write the page."""
    command = [sys.executable, str(DOCS.parent / "benchmarks/scaling.py")]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    PAGE.write_text(fill_page(PAGE.read_text(), output))
    first = output.partition("\n")[0]
    lines = "\n".join(find_sentences(PAGE.read_text()))
    sys.stdout.write(f"{first}\nwrote {PAGE}; check the numbers of these lines:\n{lines}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
