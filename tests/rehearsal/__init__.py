"""A rehearsal: steps of a profile for A100s, run here on a small model (`make rehearse`)."""
