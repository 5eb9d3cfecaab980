"""Programs that play what a laptop cannot reach: paid models, a reranker, users, GPUs, a cluster.

No image of a release holds them.
"""
