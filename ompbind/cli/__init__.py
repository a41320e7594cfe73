"""The command line: arguments to a request, the calls in order, and the one door for errors.

Imports every room; nothing imports it but `__main__`.
To add a verb: one file with its click command, and one row in `main.VERBS`.
"""
