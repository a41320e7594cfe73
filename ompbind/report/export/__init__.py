"""A plan as options for other tools: files by subject, and the table of all formats.

Other tools take the CPUs of a rank as a set of OS numbers. They know neither the order of CPUs nor which
thread gets which CPU. A format names the NUMA nodes of a rank's memory if they are known, and refuses a
`--memory` policy that its tool does not have. On a system that cannot bind processes, formats that bind
raise RequestError.

Imports the base modules, `machine`, `openmp` and `planning`; `ompbind plan --format` takes its names and
help from the table.
To add an export format: one function, and one row in `formats`.
"""
