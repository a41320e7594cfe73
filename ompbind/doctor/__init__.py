"""`ompbind doctor`: what on this machine or in this environment would break a binding.

`read_host` fills `facts`; `all_checks` runs the functions in `checks`, which make issues and read nothing.
Imports rooms up to `execution`; facts about options are arguments of `read_host`.
To add a check: one function in `checks`, and one row in `all_checks`.
"""
