"""Cost of signing, verifying and walking, beside the bare work that they cannot do without."""
