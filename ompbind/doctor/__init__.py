"""`ompbind doctor`: what on this machine or in this environment would break a binding.

`read` fills `facts`; `all_checks` runs the functions in `checks_…`, which make issues and read nothing.
Imports rooms up to `probe`; facts about options are arguments of `read_host`.
To add a check: one function in the file of its subject, and one row in `all_checks`.
"""
