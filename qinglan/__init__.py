"""Capabilities that stages and servers share; imports neither KFP nor KServe."""

__version__ = "0.1.0"
