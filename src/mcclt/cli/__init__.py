"""The command line."""

from mcclt.cli.app import main

__all__ = ["main"]
