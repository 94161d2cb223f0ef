"""What agents are shown: lists of one server or of a bundle under its names, search, and the pages that preview them."""
