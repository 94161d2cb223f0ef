from whitenoise.storage import CompressedManifestStaticFilesStorage


class StaticStorage(CompressedManifestStaticFilesStorage):
    """Rewrites the imports of our own modules to their hashed names.

    Otherwise a module reached by a page and by another module would be two, and live.js twice is two sockets. Only ours:
    other packages ship imports that resolve nowhere.
    """

    patterns = (
        *CompressedManifestStaticFilesStorage.patterns,
        ("js/*.js", CompressedManifestStaticFilesStorage._js_module_import_aggregation_patterns[1]),
    )
