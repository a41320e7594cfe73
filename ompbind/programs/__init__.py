"""What a command will run, as its files on disk show: ELF, scripts, Python packages, libraries, preloads.

Imports the base and `openmp`; nothing is executed and nothing is imported to find out.
To add a library that ompbind knows by name: one row in `library_catalog`.
"""
