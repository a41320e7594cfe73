"""Configuration files: which files apply, who may write them, what they say, and which preset is used.

`search` says where files may be, and `project_files` finds the file of the project. `read_files` reads files
and checks their owners, `parse` and `presets` are pure. Only the first two are imported when there is no
file. The keys are the long options: a new option needs nothing here.
"""
