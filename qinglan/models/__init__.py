"""Checks of a model's folder: which files it may have, what they name, and the headers of its weights."""
