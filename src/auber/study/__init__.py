"""Studies: tasks x methods x seeds as runs in one folder; a call executes the missing ones."""
