"""The REST interface of a master, and the client of it. Only this knows the HTTP libraries."""

import sys

# httpx imports its own command line where click and rich are installed: as much again as httpx itself, in
# every command and every master. It does without where that cannot be imported.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
