"""`ompbind probe`: run a parallel region in each OpenMP runtime found, and report the CPUs of its threads.

Imports the base modules, procfs, `openmp`, `programs` and `planning`; loads runtimes in child processes only.
`programs.python_packages` finds the runtimes.
"""
