"""Moves an InferenceService's traffic to a new model step by step, on evidence, or takes it back."""
