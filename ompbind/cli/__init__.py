"""The command line: options → request, the calls in order, and the only place that prints errors.

Imports every room; only `__main__` imports it.
To add a verb: one file with its click command, and one row in `main.VERBS`.
"""
