"""Time windows, count windows, and watermarks, which close time windows."""
