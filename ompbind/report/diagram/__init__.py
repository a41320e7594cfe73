"""Pictures of machines and plans: as SVG, or drawn in the characters of a terminal.

Imports `machine`, `planning` and `report`; reads nothing. Machines and plans are a tree of boxes;
to draw a further thing: a box in `model`, and its drawing in `svg` and `terminal`.
"""
