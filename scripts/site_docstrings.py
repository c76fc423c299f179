"""An extension of Griffe: docstrings, which are written for readers of the code, as Markdown for the site."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|exc|func|meth|mod):(?=`)")


class MarkdownDocstrings(Extension):
    """Makes blocks of code of examples, and plain names of names that have a role."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:  # noqa: ARG002 - the protocol of Griffe
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            text = _ROLE.sub("", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(lambda block: f"```pycon\n{block[0]}\n```", text)
