"""The rules, a file for each thing that can go wrong; `table.py` lists them."""
