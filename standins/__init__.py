"""Programs that play what a laptop cannot reach: paid models, a reranker, users, a cluster.

No image of a release holds them.
"""
