"""What a worker does as a replica: joins the others, follows them, starts again from a copy."""
