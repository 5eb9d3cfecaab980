"""A judge whose calls fail, and what a training makes of it: ours beside verl's manager that gives 0."""
