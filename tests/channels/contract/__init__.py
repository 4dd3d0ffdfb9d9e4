"""Every adapter of the project, in the contract kit."""
