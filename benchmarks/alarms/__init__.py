"""How honest the alarms are: `python -m benchmarks.alarms` measures it and writes docs/alarms.md."""
