"""Time windows, count windows, and the watermarks that close time windows."""
