"""The checks of `ompbind doctor`: facts in, issues out, one function each.

Imports `doctor.facts`, `doctor.issue` and the pure rooms; reads nothing.
To add a check: one function in the file of its subject, and one row in `doctor.table`.
"""
