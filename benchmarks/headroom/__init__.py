"""Predicted and realised gain of rewards in plain and harder worlds of both sample tenants."""
