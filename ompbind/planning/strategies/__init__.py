"""How cores are divided among ranks: a table of strategies, and the algorithms that they share.

Imports the base modules, `machine` and its own modules; `planning.allocation` calls the functions in the
table.
To add a strategy: one function, in a file of its own or in the file of its family, and one row in `table`,
which imports the file only when the strategy is used.
"""
