"""The rewriter: its folder and card, its inference, and the checks of a written rewrite."""
