"""Check a model's folder: the files that it may have, the files that these name, and the headers of its weights."""
