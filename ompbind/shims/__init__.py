"""Modules that run inside the Python of a rank; they import nothing of ompbind.

With --freeze-threads this directory is put first in PYTHONPATH, so it contains only modules that Python
itself imports at start.
To add a shim: a module with such a name.
"""
