"""A whole cluster on one machine: its layout, the process that keeps it up, its shutdown."""
