class StartProblem(Exception):
    """`up` cannot start or go on. The text is one line: what is wrong, then what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what.rstrip('.')}. {remedy}")
