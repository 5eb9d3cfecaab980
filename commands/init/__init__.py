"""`qinglan init`: from a company's sheet and documents to a folder of tenants/ that plan and run take as it is."""
