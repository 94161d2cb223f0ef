"""JSON whose bytes matter (`canonical`, RFC 8785), and strict JSON text (`text`)."""
