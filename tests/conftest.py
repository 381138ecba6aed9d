"""What every test shares."""

from __future__ import annotations

import hypothesis

# No deadline: on a busy machine a slow example says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")
