"""Bytes, steps and hours of a training or a server, computed from a model's shape before anything is started."""
