"""What the code says of the fields of a class: the strings that stand below them."""

import ast
import inspect
import textwrap
from itertools import pairwise


def attribute_docs(of: type) -> dict[str, str]:
    """The documentation of the annotated fields of ``of``, by name, in their order."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(found, ast.ClassDef)
    return {
        field.target.id: " ".join(text.split())
        for field, below in pairwise(found.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and (text := _string(below))
    }


def _string(statement: ast.stmt) -> str | None:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return None
    value = statement.value.value
    return value if isinstance(value, str) else None
