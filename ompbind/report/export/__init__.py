"""A plan in the words of other tools: one file per tool, and the table of all formats.

Imports `planning` and `report`; `ompbind plan --format` takes its names from the table.
To add an export format: one file, and one row in `table`.
"""
