"""A plan in the words of other tools: one file per tool, and the table of all formats.

Other tools take the CPUs of a rank as a set of OS numbers: they know neither the order of CPUs nor which
thread gets which CPU. `--smt` and `--reserve` have been applied by then. NUMA nodes are those that a rank's
memory should come from; a format leaves them out where they are unknown, and refuses a `--memory` policy
that its tool does not know. All but the variables of a rank are refused, with RequestError, where the machine
cannot confine a process.

Imports the base, `openmp` and `planning`; `ompbind plan --format` takes its names and help from the table.
To add an export format: one file, and one row in `table`.
"""
