"""The first module of the zipapp, `__main__`: check the version of Python, then start ompbind.

Pythons that are too old read this file too. So it has no syntax that Python 3.6 does not know.
"""

import sys

NEEDED = (3, 11)
"""The version in pyproject.toml. For an installation pip checks it; for this file nothing else does."""


def check_version() -> None:
    """Exit with a message if ompbind cannot run on this Python."""
    version = (sys.version_info[0], sys.version_info[1])
    if version >= NEEDED:
        return
    have, need = (".".join(map(str, numbers)) for numbers in (version, NEEDED))
    sys.stderr.write(f"ompbind: error: {sys.executable} is Python {have}, and {need} or later is needed\n")
    sys.stderr.write(f"  hint: start it with a newer Python, for example: python{need} {sys.argv[0]}\n")
    sys.exit(125 if sys.argv[1:2] in (["run"], ["exec"]) else 2)


def start_ompbind() -> None:
    """Start ompbind; a relative path of the zipapp would be wrong after a change of the directory."""
    import os  # only after the check

    sys.path[0] = os.path.abspath(sys.path[0])
    from ompbind.__main__ import start

    start()


if __name__ == "__main__":
    check_version()
    start_ompbind()
