"""The competitors: jobs as a good engineer writes them by hand, without Penstock."""
