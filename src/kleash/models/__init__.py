"""Everything that touches Hugging Face weights."""
