"""Which things a name may stand for at each place of Python code.

Lines that surely run replace what a name stood for; those of a branch add to it.  Inside a
function, which may run at any time, a name of the code around it is all that it ever is there.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import field
from itertools import chain, product
from math import prod
from typing import Final, TypeAlias

from op_jupyter.core.code_names import Names, canonical
from op_jupyter.core.danger_tables import TELLING
from op_jupyter.core.values import dataclass

_MOST_MEANINGS: Final = 8
_MOST_WORLDS: Final = 8
"""So many ways in which the names of one expression go together are told apart."""
_WORLD_LOOKS: Final = 4
"""As much as so many looks at nodes costs one way in which names go together."""
_LONGEST_NAME: Final = 1_000
"""A dotted name that the code puts together is unknown beyond that."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """One thing that a name may stand for; nothing is known of it where both are None."""

    dotted: str | None = None
    text: str | None = None


_UNKNOWN: Final = Meaning()
_Meanings: TypeAlias = tuple[Meaning, ...]
Known: TypeAlias = Mapping[str, _Meanings]
"""What names stand for before the code runs, as far as somebody can tell."""
_Value: TypeAlias = ast.expr | ast.alias | None
_Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(slots=True)
class _Block:
    """What names may stand for in a block of code, on top of what they may *around* it.

    *ever*: of a block that may run at any time, all that they ever stand for.
    """

    around: _Block | None = None
    ever: Mapping[str, _Meanings] = field(default_factory=dict)
    own: dict[str, _Meanings] = field(default_factory=dict)

    def get(self, name: str) -> _Meanings:
        """Nothing, for a name that the code never binds."""
        if name in self.own:
            return self.own[name]
        found = () if self.around is None else self.around.get(name)
        return _few((*found, *self.ever[name])) if name in self.ever else found


class TooMuch(Exception):
    """To read the code would take too long."""


@dataclass(slots=True)
class Effort:
    """What may still be spent on reading a piece of code and those inside it: looks at nodes."""

    left: int

    def spend(self, looks: int) -> None:
        """Count *looks*.

        Raises:
            TooMuch: there were too many.
        """
        self.left -= looks
        if self.left < 0:
            raise TooMuch


class Flow(ast.NodeVisitor):
    """Goes through code in the order in which it runs, and knows what names may stand for."""

    def __init__(self, tree: ast.Module, known: Known, effort: Effort) -> None:
        self._now = _Block(own=dict(known))
        self._effort = effort
        self._shared: set[str] = set()
        self._told: set[int] = set()
        """Names that are bound to something, by identity: their node tells no more."""
        nodes = list(ast.walk(tree))
        self._effort.spend(len(nodes))
        for node in nodes:
            self._told.update(map(id, _targets(node)))
            if isinstance(node, ast.Global | ast.Nonlocal):
                self._shared.update(node.names)
        bound = {name for node in nodes for name, _ in self._bindings(node)} | known.keys()
        if any(_runs_code(node) for node in nodes):  # which may bind any name
            bound.update(node.id for node in nodes if isinstance(node, ast.Name))
        self._names_in = self._bound_names(nodes, bound)
        for node in nodes:
            for name, value in self._bindings(node):
                self._effort.spend(1)
                again = isinstance(value, ast.expr) and name in self._names_in[id(value)]
                self._add(name, (*self._meanings(name, value), *([_UNKNOWN] if again else [])))
        self._ever = self._now.own
        self._now = _Block(own=dict(known))
        for name in self._shared & self._ever.keys():  # a function binds it, at any time
            self._add(name, self._ever[name])

    def known_now(self) -> Known:
        """What names may stand for at this place, as it is known to code that runs there."""
        block: _Block | None = self._now
        names: set[str] = set()
        while block is not None:
            names |= {*block.own, *block.ever}
            block = block.around
        self._effort.spend(len(names))
        return {name: self._now.get(name) for name in names}

    def add_known(self, known: Known) -> None:
        """Take in what other code, which may have run here, makes names stand for."""
        for name, meanings in known.items():
            self._add(name, meanings)

    def _bound_names(self, nodes: Sequence[ast.AST], bound: Set[str]) -> dict[int, Collection[str]]:
        """Of each expression, the names in it that something is known of."""
        found: dict[int, Collection[str]] = {}
        for node in reversed(nodes):  # what stands in it comes before it
            if isinstance(node, ast.stmt):
                continue
            if isinstance(node, ast.Name):
                found[id(node)] = (node.id,) if node.id in bound else ()
                continue
            inner = [there for c in ast.iter_child_nodes(node) if (there := found.get(id(c)))]
            self._effort.spend(sum(map(len, inner)))
            found[id(node)] = dict.fromkeys(chain.from_iterable(inner)) if inner else ()
        return found

    def worlds(self, node: ast.AST) -> Iterator[Names]:
        """What the names in *node* stand for, in each way that is possible.

        Where these are too many, it is each thing that one name stands for, and nothing is known
        of the others.
        """
        names = self._names_in[id(node)]
        self._effort.spend(1 + len(names))
        if not names:
            yield _NOTHING_KNOWN
            return
        may = {name: found for name in names if (found := self._now.get(name))}
        if prod(map(len, may.values())) > _MOST_WORLDS:
            for name, meanings in may.items():
                for meaning in meanings:
                    self._effort.spend(_WORLD_LOOKS)
                    yield _world({name: meaning})
            return
        for chosen in product(*may.values()):
            self._effort.spend(_WORLD_LOOKS)
            yield _world(dict(zip(may, chosen, strict=True)))

    # -- what is bound

    def _bindings(self, node: ast.AST) -> Iterator[tuple[str, _Value]]:
        """The names that *node* itself binds, and to what; None: the code alone does not tell."""
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store) and id(node) not in self._told:
                yield node.id, None
            return
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) else None
        for target in _targets(node):
            yield target.id, value
        yield from _named(node)

    def _meanings(self, name: str, value: _Value) -> _Meanings:
        """What *name* may stand for once it is bound to *value*."""
        if value is None:
            return (_UNKNOWN,)
        if isinstance(value, ast.alias):
            return (Meaning(dotted=canonical(value.name)),)
        found = []
        for names in self.worlds(value):
            dotted = names.resolve(value)
            fits = dotted is not None and dotted != name and len(dotted) <= _LONGEST_NAME
            found.append(Meaning(dotted if fits else None, names.text(value)))
        return _few(found)

    def _add(self, name: str, meanings: _Meanings) -> None:
        self._now.own[name] = _few((*self._now.get(name), *meanings))

    def generic_visit(self, node: ast.AST) -> None:
        """Go into *node*, and bind what it binds once that has run."""
        bound = [(name, self._meanings(name, value)) for name, value in self._bindings(node)]
        self._effort.spend(len(bound))
        super().generic_visit(node)
        for name, meanings in bound:
            # An expression may stand in a part of another one that is not reached.
            if isinstance(node, ast.NamedExpr) or name in self._shared:
                self._add(name, meanings)
            else:
                self._now.own[name] = meanings

    # -- what may run, or not, or again

    def _branches(self, *blocks: Iterable[ast.AST]) -> None:
        """Each of *blocks* may run, or none of them."""
        before, ends = self._now, []
        for block in blocks:
            self._now = _Block(before)
            self._visit_all(block)
            ends.append(self._now.own)
        self._now = before
        for name in dict.fromkeys(chain.from_iterable(ends)):
            self._add(name, tuple(chain.from_iterable(end.get(name, ()) for end in ends)))

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._branches(*([case] for case in node.cases))

    def visit_Try(self, node: ast.Try) -> None:
        self._try(node)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self._try(node)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        self._branches(node.body)
        self._branches(*([handler] for handler in node.handlers), node.orelse)
        self._visit_all(node.finalbody)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._loop(node, [node.target, *node.body])

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop(node, [node.target, *node.body])

    def visit_While(self, node: ast.While) -> None:
        self._loop(node, [node.test, *node.body])

    def _loop(self, node: _Loop, again: Sequence[ast.AST]) -> None:
        """What is bound at the end of a loop is what its beginning sees the next time."""
        for inner in chain.from_iterable(map(ast.walk, again)):
            self._effort.spend(1)
            for name, _ in self._bindings(inner):
                self._add(name, self._ever[name])
        self._branches(again)
        self._branches(node.orelse)

    # -- scopes

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        with self._scope():
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def _function(self, node: _Function) -> None:
        with self._scope(self._ever):
            self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node.generators, node.elt)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node.generators, node.key, node.value)

    def _comprehension(self, loops: Sequence[ast.comprehension], *made: ast.expr) -> None:
        """What it loops over comes first, although it is written last."""
        with self._scope():
            self._visit_all((*loops, *made))

    @contextmanager
    def _scope(self, ever: Mapping[str, _Meanings] | None = None) -> Iterator[None]:
        """A block whose names are no others' afterwards."""
        outside, self._now = self._now, _Block(self._now, ever or {})
        yield
        self._now = outside


_NOTHING_KNOWN: Final = Names()


def _runs_code(node: ast.AST) -> bool:
    name = getattr(node, "id", None) or getattr(node, "attr", None)
    return name in ("exec", "eval", "get_ipython", "run_cell")


def _few(meanings: Iterable[Meaning]) -> _Meanings:
    """*meanings*, each once; of very many some, and that there are others."""
    found = tuple(dict.fromkeys(meanings))
    if len(found) <= _MOST_MEANINGS:
        return found
    return tuple(dict.fromkeys((*found[: _MOST_MEANINGS - 1], _UNKNOWN)))


def _world(chosen: Mapping[str, Meaning]) -> Names:
    return Names(
        {name: m.dotted for name, m in chosen.items() if m.dotted is not None},
        {name: m.text for name, m in chosen.items() if m.text is not None},
    )


def _targets(node: ast.AST) -> Iterator[ast.Name]:
    """The names that stand for just what *node* assigns."""
    match node:
        case ast.Assign(targets=targets):
            yield from (target for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name() as target, value=ast.expr()):
            yield target
        case ast.NamedExpr(target=target) | ast.AugAssign(target=ast.Name() as target):
            yield target
        case _:
            pass


def _named(node: ast.AST) -> Iterator[tuple[str, _Value]]:
    """What *node* binds that stands in no expression of its own."""
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias) if alias.asname else (top, ast.alias(top))
        case ast.ImportFrom(module=str(module), names=[ast.alias(name="*")]):
            module = canonical(f"{module}.any").removesuffix(".any")
            known = (name for name in TELLING if name.rpartition(".")[0] == module)
            yield from ((name.rpartition(".")[2], ast.alias(name)) for name in known)
        case ast.ImportFrom(module=str(module), names=aliases):
            for alias in aliases:
                yield alias.asname or alias.name, ast.alias(f"{module}.{alias.name}")
        case ast.arg(arg=name) | ast.MatchMapping(rest=str(name)):
            yield name, None
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, None
        case ast.ExceptHandler(name=str(name)):
            yield name, None
        case _:
            pass
