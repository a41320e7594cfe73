"""Sessions of `ompbind bench` to text and files: tables, comparisons, exports.

Imports `bench` and `report`. To add an export format: a `render_` function that takes a session and its
conclusion, and a row of EXPORTS in `export`.
"""
