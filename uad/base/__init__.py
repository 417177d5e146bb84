"""Code that every other package may use: values, errors, settings, files. Knows no model and no socket."""
