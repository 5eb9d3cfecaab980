"""`qinglan check-rag`: asks a RAG service a few questions, and says what fits a run and what does not."""
