"""Measuring: workloads, plain against drafted, peers over HTTP, scaled models. Sees the runtime's front door only,
never its rooms.
"""
