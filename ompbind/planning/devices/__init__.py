"""Which devices are visible, which rank gets which devices, and the CPUs near them.

Imports what `planning` imports. The rest of `planning` imports it where a request names devices, except for
the records in `vendors`. To add a vendor: one file with its rules of visibility, and its case in `visible`.
"""
