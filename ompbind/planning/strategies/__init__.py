"""How cores are divided among ranks: a table of strategies, and the algorithms that they share.

Imports the base modules, `machine` and its own modules; `planning.allocation` calls the functions in the
table.
To add a strategy: one function, in `strategies` or in the file of its family, and one row in the table of
`strategies`.
"""
