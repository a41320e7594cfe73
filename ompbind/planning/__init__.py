"""Make a plan from a machine and a request: the CPUs, places, threads and memory of every rank, with notes.

Imports the base modules, `machine` (not its sources), `openmp`, `programs` (records only) and `masks`; reads
nothing from the system. To add a planning option: a field of `request`, the step of `planner` that uses it,
its option in `cli`. To add a note: a function in `notes`, and its name in `_SUBJECTS` there. If the note says
that ranks cannot have what was requested: its code in `planner.REFUSED_IF_STRICT`.
"""
