"""Types and schemas of values, and their Arrow form."""
