"""The edge of HTTP, for the server and the router alike: connections, access, bodies, replies, and the page."""
