"""The search for placements, on numbers only: it knows no documents of a cluster."""
