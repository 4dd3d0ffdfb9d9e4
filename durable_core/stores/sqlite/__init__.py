"""The store on SQLite: one file, any number of processes of one host.

What lives here: the connections, the writer, and one file an aggregate. What does not: sealing and values (`stores/`).
"""
