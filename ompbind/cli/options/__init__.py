"""The table of options: one record per option, and how the values of options are found.

`planning`, `running`, `bench` and `other` have the rows. Help, errors, completion, variables, keys of
`ompbind.toml` and the reference follow from a row. To add an option: one row, and the code that uses its
value. A row names its rule, in `planning_rules` or another module of rules. A rule is imported when its
option is given.
"""
