"""Values to text and JSON that several verbs print; what one verb alone prints is in its own file.

Imports records and pure functions of other rooms, nothing that reads the system; only `cli`, `bench` and
`plugins` import it.
To add a form: one file with a `render_` function, and the option value that chooses it.
"""
