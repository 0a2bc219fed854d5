"""What the drills on load hold the package to."""

from __future__ import annotations

LEDGER = 1.0  # seconds to open a ledger of 100,000 scores
CSV = 3.0  # times the memory of the rows themselves, at most, while a csv is read
