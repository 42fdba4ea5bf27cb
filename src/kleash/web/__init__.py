"""Pages served to a browser on this machine or to a team, over one security shell."""
