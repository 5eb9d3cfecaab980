"""`qinglan init`: make a folder in tenants/ from a company's sheet and documents, ready for `qinglan plan` and
`run`."""
