"""Measuring servers over HTTP: workloads, whole requests, what drafting gains. Sees no room of the runtime."""
