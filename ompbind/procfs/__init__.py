"""What the kernel shows of running processes below /proc: parsers, records, and the live readers.

Imports only the base modules; everything else may import it, and nothing else reads a live process.
`process` and `numa_maps` are pure. To read one more file of it: a parser there (text to value), and a
function of `reader`.
"""
