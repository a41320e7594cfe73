"""Launchers start processes on many machines; each gives a rank its numbers in environment variables.

Imports the base, procfs, `machine` and `planning`; used by `ompbind exec` only.
To add a launcher: one file, and one row in `table`.
"""
