"""`python -m bough` is `bough`."""

from bough.cli.main import main

main()
