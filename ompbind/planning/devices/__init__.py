"""Which devices are visible, which rank gets which devices, and the CPUs near them.

Imports what `planning` imports; loaded only by requests that name devices. To add a vendor: one file with its
rules of visibility, and its case in `visible`.
"""
