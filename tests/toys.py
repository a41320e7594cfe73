"""Run ompbind with an additional row in one of its tables; a program without content."""

import sys

from tests.live.conftest import one_line, run_program

PIP_SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The start of a script that pip writes, for a Python with any path: a shell starts this Python."""


def run_with(row, *args, joined=True, **env):
    """Run ompbind after Python code that adds a row; return its output, on one line if `joined`."""
    script = f"{row}\nfrom ompbind.cli.main import main\nmain({list(args)!r})"
    done = run_program(sys.executable, "-c", script, env=env)
    return one_line(done.stdout + done.stderr) if joined else done.stdout + done.stderr
