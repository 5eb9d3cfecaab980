"""The container images: one folder each, and what locks and builds them."""

from pathlib import Path

IMAGES = Path(__file__).parent
NAMES = ("cpu", "sft", "ppo", "serve", "style")
"""Images that a release is made of."""

STAND_INS = "standins"
"""The CPU image with the stand-ins beside it: a cluster on a laptop runs it, and no release names it."""
