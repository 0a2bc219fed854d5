"""What a target size costs: the program of `studies/sizes.toml` and of docs/results.md.

`python -m benchmarks.sizes` runs blocks; `python -m benchmarks.pages results` writes the page.
"""
