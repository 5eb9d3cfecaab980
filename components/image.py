"""The images that stages run in: this repository in a locked environment."""

import os

DATA_IMAGE = os.environ.get("QINGLAN_DATA_IMAGE", "qinglan/python-data:0.1.0")
"""A release compiles with a digest (`qinglan/python-data@sha256:...`): KFP's cache takes a tag at its word."""

TRAINING_IMAGE = os.environ.get("QINGLAN_TRAINING_IMAGE", "qinglan/training:0.1.0")
"""ms-swift, verl and their GPU packages beside this repository."""
