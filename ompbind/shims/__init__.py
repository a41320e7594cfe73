"""What runs inside the Python of a rank: nothing of ompbind is imported here.

This folder is put first in PYTHONPATH, so it holds only modules that Python itself looks for.
To add a shim: a module that Python loads by its name at start.
"""
