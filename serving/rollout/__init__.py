"""Move an InferenceService's traffic to a new model step by step if the evidence allows it; otherwise roll back."""
