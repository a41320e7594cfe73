"""What every benchmark does first: ask how often to measure, and compile the modules, as users have them."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def read_rounds(description: str | None, default: int) -> int:
    """Return --rounds of the command line; compile ompbind, and let processes that are started do so."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=default)
    rounds: int = parser.parse_args().rounds
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "ompbind")], check=True)
    return rounds
