"""Static files with hashes in their names: what `up` writes, and what `{% static %}` reads the names from."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStorage(CompressedManifestStaticFilesStorage):
    """Modules import each other by hashed names too: one instance each, cached forever. Plain names stay,
    uncompressed."""

    support_js_module_import_aggregation = True

    def url_converter(self, name: str, *rest: Any, **more: Any) -> Callable[[re.Match[str]], str]:
        """Only our own modules: third-party scripts name files that are not shipped (source maps, bare specifiers)."""
        foreign = name.endswith(".js") and not name.startswith("js/")
        return (lambda found: found[0]) if foreign else super().url_converter(name, *rest, **more)

    def compress_files(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        yield from super().compress_files(set(paths) & set(self.hashed_files.values()))
