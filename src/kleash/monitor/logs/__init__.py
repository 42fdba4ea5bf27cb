"""Reading the logs of other trainers: which files, and what their numbers are."""
