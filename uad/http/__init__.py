"""The server: requests in, answers out, in every dialect."""
