"""HTML pieces shared by every page: charts, token heat maps, tables and the shell around them."""
