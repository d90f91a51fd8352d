"""Tell LLVM which array elements cannot be the same word.

The core keeps records of several kinds in one array, and names the words of a kind with one letter: `M[warp + W_ROW]`,
`M[sub + Q_NEXT]`. Words of different kinds never overlap, but LLVM cannot know that and would load everything again
after each store. An element whose index ends in such a name gets its letter as the type of the access (`!tbaa`); an
element without one may be any word.
"""

from __future__ import annotations

import ast
import re
import string

KINDS = string.ascii_uppercase
WORD = re.compile(r"[A-Z]_(?!WORDS$)[A-Z0-9_]+$")


def kind_of(index: ast.expr) -> str:
    """Return the letter of the last name in a sum that names a word of a record, an empty string if there is none."""
    if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add):
        return kind_of(index.right) or kind_of(index.left)
    return index.id[0] if isinstance(index, ast.Name) and WORD.match(index.id) else ""


def access_tag(index: ast.expr) -> str:
    """Return what a load or store of an element with this index ends in."""
    kind = kind_of(index)
    return f", !tbaa !{2 * KINDS.index(kind) + 3}" if kind else ""


def declarations() -> str:
    """Return the module's metadata: a root, the type of any word, and a type and an access tag for each letter."""
    lines = ['!0 = !{!"heddle"}', '!1 = !{!"word", !0, i64 0}']
    for number, kind in enumerate(KINDS):
        own = 2 * number + 2
        lines += [f'!{own} = !{{!"{kind}", !1, i64 0}}', f"!{own + 1} = !{{!{own}, !{own}, i64 0}}"]
    return "\n".join(lines)
