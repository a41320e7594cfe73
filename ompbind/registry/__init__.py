"""Live runs of this machine: which run uses which CPUs, and how other runs are informed of it.

Imports the base, procfs, `machine` and `planning`; `cli` plans under its lock, `inspection`
reads it.
To publish another fact about a run: a field of `planning.occupancy.LiveRun`, and its line in `claim_format`.
"""
