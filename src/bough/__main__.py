"""`python -m bough` is `bough`."""

from bough.cli import main

main()
