"""`ompbind probe`: a parallel region in each OpenMP runtime found, and where its threads are.

Imports the base, procfs, `openmp`, `programs` and `planning`; loads runtimes in child processes only.
To find runtimes in one more place: a folder in `libraries`.
"""
