"""Types and schemas of values, and their conversion to Arrow."""
