"""The web server: Daphne, with limits on connections, on the time a request may take to arrive, and on its body.

Daphne reads a whole request before it asks the application, and keeps a large one in a temporary file. So every limit
on what a stranger sends is enforced here, while the bytes arrive.
"""
