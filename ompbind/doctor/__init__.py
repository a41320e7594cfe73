"""`ompbind doctor`: what on this machine or in this environment would break a binding.

Imports the base modules, `machine`, `planning`, `programs` and `registry`. The readers here fill
`facts`; the checks make issues from these and read nothing.
To add a check: one function in `checks`, and one row in `table`.
"""
