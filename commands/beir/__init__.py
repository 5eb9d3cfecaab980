"""`qinglan evaluate --beir`: any rewriter on a public retrieval benchmark."""
