"""Sessions of `ompbind bench` to text and files: tables, pictures in characters, comparisons, exports.

Imports `bench`, `report` and `report.diagram`; pictures as SVG are made in `report/diagram`. To add an
export format: a `render_` function that takes a session and its conclusion, and a row of EXPORTS in
`export`.
"""
