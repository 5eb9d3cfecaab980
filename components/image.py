"""The image that every data stage runs in: this repository in its locked environment."""

import os

DATA_IMAGE = os.environ.get("QINGLAN_DATA_IMAGE", "qinglan/python-data:0.1.0")
"""A release compiles with a digest (`qinglan/python-data@sha256:...`): KFP's cache takes a tag at its word."""
