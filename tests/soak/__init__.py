"""Faults and load: drills that break runs and pile up work, as functions of a scale.

`python -m tests.soak --out results/soak.json` does them at full length and keeps their figures, from which
`docs/reliability.md` is made; `test_drills.py` does a small version of each.
"""
