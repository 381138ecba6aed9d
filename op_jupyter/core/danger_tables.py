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
    "remove_tree": "deletes folders",
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
        *("get_ipython().system_piped", "commands.getoutput", "os.startfile"),
        *("pexpect.run", "pexpect.runu", "pexpect.spawn", "pexpect.spawnu", "invoke.run"),
        *("distutils.spawn.spawn", "webbrowser.get"),
        *(f"IPython.utils.process.{name}" for name in ("system", "getoutput", "getoutputerror")),
    }
)
SHELL_METHODS: Final[Mapping[str, int]] = {
    "create_subprocess_shell": 0,
    "subprocess_shell": 1,
    "pipepager": 1,
}
"""Run a command whatever they are called on; which argument it is."""

EXECUTORS: Final[Mapping[str, int]] = {
    "asyncio.create_subprocess_exec": 0,
    **{f"os.exec{suffix}": 0 for suffix in ("l", "le", "lp", "lpe")},
    **{f"os.spawn{suffix}": 1 for suffix in ("l", "le", "lp", "lpe")},
}
"""Take the words of a command as arguments of their own, from that one on."""

EXECUTING_METHODS: Final[Mapping[str, int]] = {"create_subprocess_exec": 0, "subprocess_exec": 1}
"""The same, whatever they are called on."""

LIST_EXECUTORS: Final[Mapping[str, int]] = {
    **{f"os.exec{suffix}": 1 for suffix in ("v", "ve", "vp", "vpe")},
    **{f"os.spawn{suffix}": 2 for suffix in ("v", "ve", "vp", "vpe")},
    **dict.fromkeys(("os.posix_spawn", "os.posix_spawnp"), 1),
}
"""Take the words of a command as a list, which is that argument."""

EVALUATORS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("exec", "eval", "compile"), (0,)),
    **{f"get_ipython().{name}": (0,) for name in ("run_cell", "run_cell_async", "ex", "ev")},
    **dict.fromkeys(("timeit.timeit", "timeit.repeat", "timeit.Timer"), (0, 1)),
    **dict.fromkeys(("cProfile.run", "profile.run", "pdb.run", "pdb.runeval"), (0,)),
    **dict.fromkeys(("cProfile.runctx", "profile.runctx"), (0,)),
}
"""Run code that is a text; which arguments it is."""

EVALUATING_METHODS: Final = frozenset({"runsource", "runcode", "run_code", "load_module"})
"""Run code whatever they are called on."""

CODE_MAKERS: Final = frozenset(
    {
        *("types.FunctionType", "types.CodeType", "code.interact", "code.InteractiveConsole"),
        *("marshal.loads", "marshal.load", "pickle.loads", "cloudpickle.loads", "dill.loads"),
        *("yaml.unsafe_load", "yaml.full_load", "jsonpickle.decode", "codeop.compile_command"),
    }
)
"""Make code out of values that are built while it runs."""

FOREIGN: Final = frozenset(
    {
        *("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll", "ctypes.pydll", "ctypes.pythonapi"),
        *("ctypes.windll", "ctypes.memmove", "ctypes.memset", "ctypes.string_at", "cffi.FFI"),
        *("ctypes.CFUNCTYPE", "ctypes.util.find_library"),
    }
)
"""Reach what is not Python."""

MAGICS: Final = frozenset(
    {"get_ipython().run_line_magic", "get_ipython().run_cell_magic", "get_ipython().magic"}
)

HARMLESS_MAGICS: Final = frozenset(
    {
        *("matplotlib", "pylab", "who", "whos", "who_ls", "pinfo", "pinfo2", "psearch", "pdoc"),
        *("pdef", "psource", "precision", "pprint", "autoreload", "load_ext", "reload_ext"),
        *("config", "pwd", "lsmagic", "run", "pip", "conda", "mamba", "uv", "history", "xmode"),
        *("html", "HTML", "latex", "markdown", "svg", "time", "timeit", "prun", "capture"),
    }
)
"""Magics that do no more than code does that nobody is asked about."""

HARMLESS_SHELL: Final = frozenset(
    {
        *("display_formatter", "execution_count", "user_ns", "colors", "history_manager"),
        *("display_pub", "showtraceback", "In", "Out", "config", "user_module", "run_line_magic"),
        *("run_cell_magic", "magic", "system", "getoutput", "system_raw", "system_piped"),
        *("run_cell", "run_cell_async", "ex", "ev", "enable_matplotlib", "enable_gui", "__class__"),
    }
)
"""What of the notebook's shell may be used, or is judged by what it is given."""

QUIET: Final = frozenset(
    {
        *("print", "dir", "help", "type", "isinstance", "issubclass", "hasattr", "callable", "id"),
        *("repr", "str", "getattr", "vars", "importlib.reload", "reload", "inspect.getsource"),
        *("inspect.signature", "inspect.getfile", "inspect.getdoc", "object.__getattribute__"),
        *("inspect.isfunction", "inspect.ismodule", "display", "bool", "hash", "warnings.warn"),
    }
)
"""Do nothing with what they are given but look at it."""

REACHING: Final = frozenset(
    {
        *("__subclasses__", "__globals__", "__builtins__", "__self__", "__loader__"),
        *("__getattribute__", "__getattr__"),
        *("f_globals", "f_builtins", "f_locals", "gi_frame", "cr_frame", "ag_frame", "tb_frame"),
    }
)
"""Attributes that lead from anything to everything."""

REACHERS: Final = frozenset({"gc.get_objects", "gc.get_referrers", "gc.get_referents"})
REPLACING: Final = frozenset({"__code__", "__globals__", "__class_getitem__"})
"""Attributes that make a function do something else once they are assigned."""

AGENT_ATTRIBUTES: Final = frozenset(
    {"permission_mode", "add_rule", "allow_everything", "user_rules", "AgentMagics"}
)
AGENT_VARIABLE: Final = "OPENPROGRAM_ALLOW_EVERYTHING"

PROCESS_ENDERS: Final = frozenset(
    {
        *("os.kill", "os.killpg", "signal.raise_signal", "signal.pthread_kill", "os.abort"),
        *("faulthandler._sigsegv", "faulthandler._sigabrt", "faulthandler._sigfpe"),
    }
)
KERNEL_ENDERS: Final = frozenset({"exit", "quit", "os._exit", "os.abort"})

GUARDED_MODULES: Final = frozenset(
    {"os", "shutil", "subprocess", "builtins", "pathlib", "importlib", "pty", "ctypes"}
)

_FILE_HANDLERS: Final = ("RotatingFile", "TimedRotatingFile", "WatchedFile")
_PANDAS_STORES: Final = ("ExcelWriter", "HDFStore")
WRITING_CALLS: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree"), (1,)),
    **dict.fromkeys(("shutil.move", "os.rename", "os.replace", "os.renames"), (0, 1)),
    **dict.fromkeys(("os.makedirs", "os.mkdir", "os.chmod", "os.chown", "os.truncate"), (0,)),
    **dict.fromkeys(("os.symlink", "os.link", "urllib.request.urlretrieve"), (1,)),
    **dict.fromkeys(("os.mkfifo", "os.mknod", "os.utime", "os.setxattr", "os.lchown"), (0,)),
    **dict.fromkeys(("shutil.chown", "shutil.make_archive", "os.lchmod", "os.chflags"), (0,)),
    "shutil.unpack_archive": (1,),
    "logging.basicConfig": (),
    **dict.fromkeys(("sqlite3.connect", "duckdb.connect", "shelve.open", "dbm.open"), (0,)),
    **dict.fromkeys(("logging.FileHandler", "venv.create", "dotenv.set_key"), (0,)),
    **{f"logging.handlers.{name}Handler": (0,) for name in _FILE_HANDLERS},
    **{f"{pandas}.{name}": (0,) for pandas in ("pd", "pandas") for name in _PANDAS_STORES},
    **dict.fromkeys(("numpy.save", "numpy.savez", "numpy.savetxt", "np.save"), (0,)),
    **dict.fromkeys(
        ("np.savez", "np.savetxt", "numpy.savez_compressed", "np.savez_compressed"), (0,)
    ),
    **dict.fromkeys(("torch.save", "joblib.dump"), (1,)),
}
"""Functions that write, and which arguments are the paths."""

TARGETS: Final = frozenset(
    {
        *("dst", "path", "name", "base_name", "extract_dir", "filename", "file", "fname"),
        *("database", "newline_path", "env_dir", "dotenv_path"),
    }
)
"""What the paths are called where they are given by name."""
SOURCES: Final = frozenset({"src", "source"})
"""The same of what is gone afterwards."""
METHOD_TARGETS: Final = ("path", "path_or_buf", "fname", "file", "fid", "filename", "excel_writer")
FOLDER_CHANGERS: Final = frozenset({"os.chdir", "contextlib.chdir", "chdir"})

WRITING_METHODS: Final = frozenset(
    {
        *("to_csv", "to_parquet", "to_excel", "to_json", "to_pickle", "to_feather", "to_html"),
        *("to_hdf", "to_stata", "to_xml", "to_markdown", "to_latex", "to_netcdf", "to_zarr"),
        *("savefig", "write_csv", "write_parquet", "write_json", "write_ipc", "write_html"),
        *("write_image", "save", "extractall", "sink_parquet", "sink_csv", "tofile"),
    }
)
"""Methods of anything whose first argument is the path that they write."""

PATH_WRITERS: Final = frozenset(
    {
        *("write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to", "link_to"),
        *("chmod", "lchmod", "rename"),
    }
)
"""Methods of a path that change what it names."""

OPENERS: Final = frozenset(
    {
        *("open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"),
        *("zipfile.ZipFile", "tarfile.open", "h5py.File", "io.FileIO", "tarfile.TarFile"),
        *("gzip.GzipFile", "bz2.BZ2File", "lzma.LZMAFile", "np.memmap", "numpy.memmap"),
        *("netCDF4.Dataset", "zarr.open", "rasterio.open", "fsspec.open"),
    }
)
HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


HANDED: Final = frozenset(
    {
        *(*SHELLS, *EXECUTORS, *LIST_EXECUTORS, *EVALUATORS, *MAGICS, *CODE_MAKERS),
        *("__import__", "importlib.import_module", "get_ipython", "get_ipython()"),
    }
)
"""Do anything, depending on what they are given."""

TELLING: Final = frozenset(
    {
        *(*DELETERS, *SHELLS, *EXECUTORS, *LIST_EXECUTORS, *WRITING_CALLS, "shutil.rmtree"),
        *(*OPENERS, *CODE_MAKERS, *FOREIGN, *PROCESS_ENDERS, *KERNEL_ENDERS),
        *("importlib.import_module", "IPython.get_ipython"),
    }
)
"""What ``from module import *`` may bring in under a short name."""
