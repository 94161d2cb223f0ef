"""The live connection of a page: WebSocket consumer, tickets, topics, and the frames that it pushes."""
