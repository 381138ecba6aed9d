"""The name `openprogram`: a single file that stands for `op_jupyter` and holds nothing itself.

The build installs this file as the top-level module `openprogram` (an editable install gets a
copy), so never import it as `op_jupyter._openprogram`. Every `openprogram.<name>` is the very same
object as `op_jupyter.<name>`: two copies of a module would mean two sessions and two registries.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any

import op_jupyter

if TYPE_CHECKING:
    from op_jupyter import *  # noqa: F403

_ALIAS = "openprogram"
_REAL = "op_jupyter"

# Makes `import openprogram.engine.context` legal; the finder below is the one that answers.
__path__: list[str] = []
__all__ = op_jupyter.__all__


class _AliasFinder(MetaPathFinder, Loader):
    """Resolve `openprogram.<sub>` to the module `op_jupyter.<sub>` itself, not to a copy."""

    alias = _ALIAS

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_ALIAS}."):
            return None
        real = find_spec(_REAL + fullname.removeprefix(_ALIAS))
        if real is None:
            return None
        is_package = real.submodule_search_locations is not None
        return spec_from_loader(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_REAL + spec.name.removeprefix(_ALIAS))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo the one thing the import system changed: the module ran under its own name."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def __getattr__(name: str) -> Any:
    return getattr(op_jupyter, name)


def __dir__() -> list[str]:
    return dir(op_jupyter)


# First, because the path finder would answer for a real package's folder with a second copy.
# Replaced, not added, when `%reload_ext openprogram` runs this file again.
sys.meta_path[:] = [
    _AliasFinder(),
    *(finder for finder in sys.meta_path if getattr(finder, "alias", None) != _ALIAS),
]
