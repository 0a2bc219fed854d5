"""`python -m auber`: the command line."""

from auber.cli import main

main()
