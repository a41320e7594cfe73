"""Pictures of machines and plans: a tree of boxes, drawn as SVG or in the characters of a terminal.

Imports `machine`, `planning` and `report`; reads nothing.
To draw a further thing: a box in `model`, and its drawing in `svg` and `terminal`.
"""
