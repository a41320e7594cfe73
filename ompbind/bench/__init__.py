"""The verb `bench`: runs candidates (placements) of a command in rounds, and shows the best.

Imports all rooms up to `cli`, which loads `verb` and `options` by name. `session` is the main loop: it asks
`decision` which candidates run next, and `run_candidate` runs them. Start reading at `records`, which are
also the format of results files. To add a quantity that is recorded for each run: a field of `records.Run`,
the code in `run_candidate` that reads it, and a column of `table`. To add an export: a row of EXPORTS in
`export`.
"""
