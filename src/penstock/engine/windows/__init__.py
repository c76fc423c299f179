"""Windows of time and of numbers of records, and the watermarks that close them."""
