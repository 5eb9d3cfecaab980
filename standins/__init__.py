"""Stand-ins for what a laptop lacks: paid models, a reranker, a company's RAG service, users, GPUs, a cluster.

Images of a release do not contain them.
"""
