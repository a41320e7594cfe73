"""Compare the threads of running processes with their plan, or with each other, and explain the issues.

Imports the base modules, procfs, `machine`, `openmp`, `programs`, `planning` and `registry`; reads
processes and live runs, and changes nothing. `diagnosis` says what a plan expects, and finds causes. To add
an issue: a case in `judge`, and its cause in `diagnosis`. Issues that need several samples are in `load`,
issues of several ranks or processes in `shared_load`.
"""
