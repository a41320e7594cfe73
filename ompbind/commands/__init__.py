"""Plan × command × rank → what a rank is started with: its arguments, environment and directory.

Imports the base modules, `machine`, `openmp` and `planning`. Pure: the caller's environment is an argument.
To add a variable of ranks: a name in `rank_variables`, its value in `environment`.
"""
