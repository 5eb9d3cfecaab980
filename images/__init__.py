"""The container images: one folder each, and what locks and builds them."""

from pathlib import Path

IMAGES = Path(__file__).parent
NAMES = ("cpu", "sft", "ppo", "serve", "style")
