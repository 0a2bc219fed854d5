"""The cost of a reward, a tuning step and a whole run, beside plain transformers, in one process.

`subjects` makes models and rows, `floor` counts the arithmetic that no implementation can avoid,
`rewards` and `training` measure, `record` is the result, `tables` shows results.
"""
