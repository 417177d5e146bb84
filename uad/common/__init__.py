"""What every room may import: reading files, misspelt names, settings, samplers. Imports no room but errors."""
