"""Files, locks, seeds, progress and processes: what every other package builds on."""
