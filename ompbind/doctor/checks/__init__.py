"""The checks of `ompbind doctor`: facts in, issues out, one function each.

Imports the base modules, `doctor.facts`, `machine`, `openmp`, `planning` and `programs`; reads nothing.
To add a check: one function in the file of its subject, and one row in `doctor.all_checks`.
"""
