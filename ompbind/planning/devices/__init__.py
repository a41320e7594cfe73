"""Which devices are visible, which rank gets which devices, and the CPUs near them.

Imports what `planning` imports; the rest of `planning` imports it where a request names devices.
To add a vendor: its rules of visibility, and its case, in `visible`.
"""
