"""`qinglan check-rag`: ask a RAG service a few questions, and report which of its properties fit a run."""
