"""The demonstration: openers to continue (`openers.txt`) and a sentiment reward."""
