"""The REST interface of a master, and the client of it. Only this knows the HTTP libraries."""
