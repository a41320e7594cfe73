"""Running processes as /proc shows them: parsers, records, and readers of live processes.

Imports the base modules only; all other packages may import it. `process`, `process_files` and `numa_maps`
are pure. To read one more file of /proc/PID: a parser in one of these (text → value), and a function in
`reader`; in `reader` if each start of ranks needs it.
"""
