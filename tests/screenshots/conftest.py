import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.e2e.conftest import own_stack, walker
from tests.screenshots.product import Product

__all__ = ["own_stack", "walker"]


@pytest.fixture(scope="session")
def product(browser: Browser) -> Iterator[Product]:
    started = Product(browser)
    yield started
    started.stack.stop()
    shutil.rmtree(started.stack.data_dir, ignore_errors=True)
