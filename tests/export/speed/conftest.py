"""onnxruntime reports to nobody, whichever test imports it first."""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
