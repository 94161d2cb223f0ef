"""The recorded wire: messages and HTTP exchanges as pages and searches read them, and how long they are kept."""
