# ruff: noqa: A005  (named like the package it tests, which shadows nothing as part of `tests`)
