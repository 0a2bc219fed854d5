"""A running search or study seen from outside: its folder is read, nothing in it is written or locked.

`RunWatcher` and `StudyWatcher` look at a folder and say what they see as plain records; `drawing` makes lines of them. A look
may come before, during or after the run, on any machine that sees the folder: what is not there yet, or is just being
replaced, is seen at a later look.
"""
