"""`qinglan doctor`: checks this machine, a profile's keys, hosts, models and RAG service, and the cluster."""
