"""The style sheets of every page, in the order in which their rules win."""

BUNDLE = "css/app.css"
STYLES = (
    "vendor/tabler/tabler.min.css",
    "vendor/uplot/uplot.min.css",
    *(
        f"css/{name}.css"
        for name in (
            *("base", "shell", "menus", "page", "kit", "feedback", "forms", "tables", "dashboard", "tools"),
            *("operations", "pages", "server-form", "inbox", "sessions", "charts", "util"),
        )
    ),
)
