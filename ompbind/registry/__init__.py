"""Live runs of this machine: who holds which CPUs, for how long, and how others find out.

Imports the base, procfs, `machine` and `planning`; `cli` plans under its lock, `inspection`
reads it.
To tell other runs one more fact: a field of `planning.occupancy.LiveRun`, and its line in the claim's text.
"""
