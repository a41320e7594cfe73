"""What a command will run, as its files show: ELF headers, scripts, Python packages, libraries, preloads.

Imports the base modules and `openmp`. Nothing is executed or imported to find out.
To add a library that ompbind recognizes: one row in `libraries`. To add a shell, a launcher, or a
wrapper such as `taskset`: its name in `wrappers`.
"""
