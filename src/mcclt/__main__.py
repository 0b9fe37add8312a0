"""`python -m mcclt`."""

from mcclt.cli import main

main()
