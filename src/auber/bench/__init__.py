"""What a reward, a tuning step and a whole search cost here, beside the plain ways, measured in one run.

`catalogue` names what can be measured, `subjects` makes it, `arithmetic` counts what must be computed, `plain` is the way
without this package, `rewards`, `tunings`, `search` and `growth` measure, `measure` runs them in order, `record` is what
comes out, `plot` and `page` show records that were kept.
"""
