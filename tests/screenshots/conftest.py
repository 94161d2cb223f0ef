from tests.e2e.conftest import own_stack, walker

__all__ = ["own_stack", "walker"]
