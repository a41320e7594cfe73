"""A program of a Python package, without content."""

import sys

PIP_SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The start of a script that pip writes, for a Python with any path: a shell starts this Python."""
