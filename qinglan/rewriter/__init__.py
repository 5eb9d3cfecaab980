"""The rewriter: its folder and card, the one way to ask it, and the check of what it wrote."""
