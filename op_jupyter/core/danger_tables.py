"""What is dangerous to call in Python code, and what writes: the tables that `danger` reads by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DELETERS: Final = {
    "os.remove": "deletes a file",
    "os.unlink": "deletes a file",
    "os.rmdir": "deletes a folder",
    "os.removedirs": "deletes folders",
    "send2trash.send2trash": "moves files to the trash",
}

DELETING_ATTRIBUTES: Final = {
    "rmtree": "deletes folders",
    "removedirs": "deletes folders",
    "rmdir": "deletes a folder",
    "unlink": "deletes a file",
}
"""Telling on their own, so they count whatever they are called on."""

SHELLS: Final = frozenset(
    {
        *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
        *("subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.Popen"),
        *("subprocess.check_output", "asyncio.create_subprocess_shell", "pty.spawn"),
        *("get_ipython().system", "get_ipython().getoutput", "get_ipython().system_raw"),
        *("get_ipython().system_piped", "commands.getoutput"),
    }
)

EXECUTORS: Final[Mapping[str, int]] = {
    "asyncio.create_subprocess_exec": 0,
    **{f"os.exec{suffix}": 0 for suffix in ("l", "le", "lp", "lpe")},
    **{f"os.spawn{suffix}": 1 for suffix in ("l", "le", "lp", "lpe")},
}
"""Take the words of a command as arguments of their own, from that one on."""

LIST_EXECUTORS: Final[Mapping[str, int]] = {
    **{f"os.exec{suffix}": 1 for suffix in ("v", "ve", "vp", "vpe")},
    **{f"os.spawn{suffix}": 2 for suffix in ("v", "ve", "vp", "vpe")},
    **dict.fromkeys(("os.posix_spawn", "os.posix_spawnp"), 1),
}
"""Take the words of a command as a list, which is that argument."""

EVALUATORS: Final = frozenset(
    {"exec", "eval", "compile"}
    | {f"get_ipython().{name}" for name in ("run_cell", "run_cell_async", "ex", "ev")}
)

MAGICS: Final = frozenset(
    {"get_ipython().run_line_magic", "get_ipython().run_cell_magic", "get_ipython().magic"}
)

KERNEL_ENDERS: Final = frozenset({"exit", "quit", "os._exit", "os.abort"})

GUARDED_MODULES: Final = frozenset(
    {"os", "shutil", "subprocess", "builtins", "__builtins__", "pathlib", "posix", "importlib"}
)

WRITING_CALLS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree"), (1,)),
    **dict.fromkeys(("shutil.move", "os.rename", "os.replace", "os.renames"), (0, 1)),
    **dict.fromkeys(("os.makedirs", "os.mkdir", "os.chmod", "os.chown", "os.truncate"), (0,)),
    **dict.fromkeys(("os.symlink", "os.link", "urllib.request.urlretrieve"), (1,)),
    **dict.fromkeys(("numpy.save", "numpy.savez", "numpy.savetxt", "np.save"), (0,)),
    **dict.fromkeys(
        ("np.savez", "np.savetxt", "numpy.savez_compressed", "np.savez_compressed"), (0,)
    ),
    **dict.fromkeys(("torch.save", "joblib.dump"), (1,)),
}
"""Functions that write, and which arguments are the paths."""

WRITING_METHODS: Final = frozenset(
    {
        *("to_csv", "to_parquet", "to_excel", "to_json", "to_pickle", "to_feather", "to_html"),
        *("to_hdf", "to_stata", "to_xml", "to_markdown", "to_latex", "to_netcdf", "to_zarr"),
        *("savefig", "write_csv", "write_parquet", "write_json", "write_ipc", "write_html"),
        *("write_image", "save", "extractall", "sink_parquet", "sink_csv"),
    }
)
"""Methods of anything whose first argument is the path that they write."""

PATH_WRITERS: Final = frozenset(
    {"write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to", "chmod", "rename"}
)
"""Methods of a path that change what it names."""

OPENERS: Final = frozenset(
    {
        *("open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"),
        *("zipfile.ZipFile", "tarfile.open", "h5py.File"),
    }
)
WRITING_FLAGS: Final = frozenset({"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"})
HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


TELLING: Final = frozenset(
    {*DELETERS, *SHELLS, *EXECUTORS, *LIST_EXECUTORS, *WRITING_CALLS, "shutil.rmtree"}
)
"""What ``from module import *`` may bring in under a short name."""
