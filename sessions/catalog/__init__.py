"""What a server offers: its tools, resources and prompts as pages list and search them, with their versions."""
