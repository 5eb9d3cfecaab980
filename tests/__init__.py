"""Here so that this folder, and no installed package of the same name, is `tests`."""
