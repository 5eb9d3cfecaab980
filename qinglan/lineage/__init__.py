"""Where every artifact came from: digests, counts, parents and code, written by the step that made it."""
