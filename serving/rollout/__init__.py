"""Moves an InferenceService's traffic to a new model on evidence, or takes it back."""
