"""Many runs that differ in some settings: each a child process and a run directory of its own. Imports no torch."""
