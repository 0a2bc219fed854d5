"""Hostile files: whatever a stranger may supply is read, or refused with an error of one line.

`readers` names everything that is read, `mutations` damages valid files, `trial` gives one input to
one reader and judges the outcome.
"""
