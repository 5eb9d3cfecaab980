"""Computes bytes, steps and hours of a training or a server from a model's shape, before anything is started."""
