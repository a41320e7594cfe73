"""The checks of `ompbind doctor`: facts in, issues out, one function each.

Imports the base modules, `doctor.facts`, `doctor.issue`, `machine`, `openmp`, `planning` and `programs`;
reads nothing.
To add a check: one function in the file of its subject, and one row in `doctor.table`.
"""
