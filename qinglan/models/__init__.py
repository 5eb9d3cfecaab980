"""A model's folder as plain files: which may be there, what they name, what their weights say of themselves."""
