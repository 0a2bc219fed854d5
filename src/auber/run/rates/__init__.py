"""Which learning rate the first tuning should have, found on rows of train that are held out; dev is never looked at.

`grid` is what is asked, `tunings` tries it, `record` is the file that comes out, `choice` is what it says.
"""
