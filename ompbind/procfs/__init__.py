"""Running processes as /proc shows them: parsers, records, and readers of live processes.

Imports the base modules only; all other rooms may import it. `parsers` is pure.
To read one more file of /proc/PID: a function in `parsers` (text → value), and a function in `reader`.
"""
