"""Live runs of this machine: each run publishes its CPUs in a locked file, a *claim*.

Imports the base modules, procfs, `machine` and `planning`; `cli` plans under its lock, `inspection`
reads it.
To publish another fact about a run: a field of `planning.other_runs.LiveRun`, its key and its parser in
`claims`.
"""
