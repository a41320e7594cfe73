"""The command line: one file per verb (`run`, `plan`, …), which turns options into a request and prints.

Imports all other rooms but `workers`; only `__main__` imports it.
To add a verb: one file with its command `VERB`, and its name in `verbs`. To add an option: one row in a
file `*_options.py`, or in `OPTIONS` of the only verb that has it; one field in `settings`, or in
`execution.run_options.Supervision` for the supervisor; and the code that uses it.
"""
