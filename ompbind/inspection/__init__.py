"""Whether the threads of running processes are where the plan wants them, and if not, why.

Imports every room before it; reads processes by procfs and runs by the registry, and changes nothing.
What a plan expects is in `expectation`. To add a finding: a case in `judge`, and its cause in `diagnosis`.
"""
