"""What signing, verifying and walking cost, beside the bare work that they cannot do without."""
