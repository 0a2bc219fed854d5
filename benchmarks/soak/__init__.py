"""Faults and load: drills that break runs and pile up work, as functions of a scale.

`processes` starts processes quickly, `job` is what they do, `faults` breaks it, `load` piles up
work.
"""
