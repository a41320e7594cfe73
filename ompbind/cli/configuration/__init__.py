"""Configuration files: which files apply, who may write them, what they say, and which preset is used.

`search` finds files, `read_files` reads them and checks their owners, `parse` and `presets` are pure. Only
`search` is imported when there is no file. The keys are the long options: a new option needs nothing here.
"""
