"""Metrics of tasks, smooth rewards and statistics of paired runs."""
