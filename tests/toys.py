"""Run ompbind with an additional row in one of its tables; a program without content."""

import subprocess
import sys

from tests.live.conftest import clean_environment

PIP_SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The start of a script that pip writes, for a Python with any path: a shell starts this Python."""


def run_with(row, *args, joined=True, **env):
    """Run ompbind after Python code that adds a row; return its output, on one line if `joined`."""
    script = f"{row}\nfrom ompbind.cli.main import main\nmain({list(args)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean_environment(**env), text=True, timeout=60,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return " ".join(done.stdout.split()) if joined else done.stdout
