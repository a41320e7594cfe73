"""Find out which launcher (Slurm, MPI, …) started this process, and read its rank from the environment.

Imports the base modules, procfs, `machine` and `planning`. `ompbind exec` starts a rank of the launcher;
`ompbind run` warns if a launcher has started several copies.
To add a launcher: one row in `launchers`.
"""
