"""What the processes of a cluster share: step loop, a worker's folder, a worker's link to the store."""
