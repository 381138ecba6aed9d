"""The kernel application: ipykernel, with our extension loaded before the first cell."""

from ipykernel.kernelapp import IPKernelApp

# Not the alias `openprogram`: another package of that name may be installed in its place.
EXTENSION = "op_jupyter"


class OpenProgramKernelApp(IPKernelApp):
    """IPython kernel that behaves as if `%load_ext openprogram` had run first."""

    def init_extensions(self) -> None:
        """Load ours first, then whatever the user's configuration names."""
        self.extra_extensions = [
            EXTENSION,
            *(name for name in self.extra_extensions if name != EXTENSION),
        ]
        super().init_extensions()  # type: ignore[no-untyped-call]  # ipykernel
