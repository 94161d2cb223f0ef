"""Characters that no single line of a registration holds."""

import re

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
MAX_VALUE_LENGTH = 16_384
