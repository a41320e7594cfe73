"""Values to text and JSON, for people and for programs.

Imports the records of other packages, nothing that reads the system; only `cli` imports it.
To add a form: one file with a `render_` function, and the option value that chooses it.
"""
