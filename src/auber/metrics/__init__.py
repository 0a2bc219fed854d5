"""Metrics of a task, smooth rewards and statistics of paired runs."""
