"""Programs that start processes over many machines, and what they tell a rank in its environment.

Imports the base, procfs, `machine` and `planning`; used by `ompbind exec` only.
To add a launcher: one file, and one row in `table`.
"""
