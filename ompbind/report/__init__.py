"""Values to text and JSON, for people and for programs.

Imports records and pure functions of other rooms, nothing that reads the system; only `cli` imports it.
To add a form: one file with a `render_` function, and the option value that chooses it.
"""
