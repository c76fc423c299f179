"""The search for backup locations, on numbers only: it knows no documents of a cluster."""
