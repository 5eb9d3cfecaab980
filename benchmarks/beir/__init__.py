"""Rewriters on a public retrieval benchmark in BEIR's layout; docs/beir.md."""
