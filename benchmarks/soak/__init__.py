"""Faults and load: drills that break runs and pile up work, as functions of a scale.

`job` has the jobs that `faults` breaks, `load` piles up work, `record` is the result.
"""
