"""What the kernel shows of running processes below /proc: parsers, records, and the one live reader.

Imports only the base modules; everything else may import it, and nothing else opens /proc/PID.
To read one more file of /proc/PID: a parser (text to value), and a function of the reader that uses it.
"""
