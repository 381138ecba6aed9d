"""The public API in use: type-checked by `make check`, never run."""

import op_jupyter

version: str = op_jupyter.__version__
