"""Of the answers of slow_readers.py, and the bounds that it sets."""

MIB = 1024 * 1024
LARGE, DOWNLOAD, STREAM = 16 * MIB, 128 * MIB, 40 * MIB
TAKEN_PER_SECOND, MOST_HELD = 2 * MIB, 64 * MIB
