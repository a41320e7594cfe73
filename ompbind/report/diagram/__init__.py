"""Pictures of machines and plans: a model of boxes, drawn as SVG or in the characters of a terminal.

Imports `machine`, `planning` and `report`; reads nothing.
To draw one more thing: a box in `model`, and how it looks in `svg` and `terminal`.
"""
