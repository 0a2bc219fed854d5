"""Questions about the method, asked with real weights; the answers are in docs/experiments.md. None of it is installed.

Each experiment is a program (`python -m experiments.NAME --help`) that writes one small JSON file and tells nothing of dev.
"""
