"""`python -m ompbind`."""

from ompbind.cli.main import main

main()
