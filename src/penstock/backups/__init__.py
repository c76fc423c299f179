"""Node-kept data of jobs, and its backups on other nodes."""
