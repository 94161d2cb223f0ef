"""The number of tokens in a text, by the vocabulary cl100k_base. Each model counts differently; for definitions in
English, the others are within a few percent of it.

The vocabulary file is tiktoken's, compressed; a test compares its hash with the one that tiktoken expects.
"""

import gzip
from base64 import b64decode
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import tiktoken

NAME: Final = "cl100k_base"
FILE: Final = Path(__file__).parent / "vocabulary" / f"{NAME}.tiktoken.gz"
_WORDS: Final = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""


@lru_cache(maxsize=2_048)
def count(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


@cache
def _encoding() -> "tiktoken.Encoding":
    """Takes 40 MB and a few tenths of a second, once, in a process that shows such numbers."""
    import tiktoken  # noqa: PLC0415  # as above

    lines = gzip.decompress(FILE.read_bytes()).splitlines()
    ranks = {b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    return tiktoken.Encoding(NAME, pat_str=_WORDS, mergeable_ranks=ranks, special_tokens={})
