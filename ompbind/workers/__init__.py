"""Binds worker processes that other Python programs start: `placed`, `bind_process`, and their variables.

Imports the base modules, procfs, `machine`, `openmp`, `programs`, `planning`, `compat`, `inspection` and
`execution`, whose functions set affinity masks and memory policies.
To add a setting of a process: set and restore it in `placed`, which `bind_process` uses too.
To make a function public: name it in `ompbind/__init__.py` and `__init__.pyi`, and describe it in
`docs/python.md`.
"""
