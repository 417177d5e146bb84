"""The work of the commands that open models without serving them: inspect, mapping, profile, trim, rpc-worker. Knows no
terminal.
"""
