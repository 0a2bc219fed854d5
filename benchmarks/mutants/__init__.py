"""Tests that can fail: small mistakes are put into the core, and its tests must notice them.

`changes` lists the mistakes that a module can be given, `trial` runs the tests of a module in a
copy of the tree, `record` is the result.
"""
