"""A complete cluster on one machine: its layout, the process that keeps it running, its shutdown."""
