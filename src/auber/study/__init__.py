"""Studies: tasks x methods x seeds as runs in one folder; a call does those that are missing."""
