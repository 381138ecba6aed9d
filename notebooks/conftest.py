"""`pytest --nbval notebooks/` replays the lessons: no key, no network, no session left behind."""

import atexit
import os
import shutil
import tempfile

_home = tempfile.mkdtemp(prefix="op-jupyter-lessons-")
atexit.register(shutil.rmtree, _home, ignore_errors=True)

# The kernels that nbval starts inherit this.
os.environ["OPENPROGRAM_HOME"] = _home
os.environ["OPENPROGRAM_CONFIG"] = os.path.join(_home, "config.toml")
open(os.environ["OPENPROGRAM_CONFIG"], "w").close()
os.environ["OPENPROGRAM_REPLAY"] = "replay"
os.environ["OPENPROGRAM_RECORD_WITH"] = "op-jupyter cassette record NOTEBOOK"
for _name in ("OPENPROGRAM_PROVIDER", "OPENPROGRAM_MODEL", "OPENPROGRAM_MODE"):
    os.environ.pop(_name, None)
