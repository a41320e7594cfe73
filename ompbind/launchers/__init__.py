"""Find out which launcher (Slurm, MPI, …) started this process, and read its rank from the environment.

Imports the base modules, procfs, `machine` and `planning`; used by `ompbind exec` only.
To add a launcher: one file, and one row in `table`.
"""
