"""What the recipes of evidence share: runs to be made, numbers to be measured, and the pages that tell them."""
