from __future__ import annotations

import pytest

from auber.errors import ConfigError
from auber.export import export_model
from auber.export.speed.exported import time_exported
from auber.system.progress import Progress
from auber.training.timing import Limits
from tests.export.models import save_pruned


def test_only_a_graph_can_be_timed(tmp_path):
    save_pruned(tmp_path / "mine")
    exported = export_model(tmp_path / "mine", "dense")
    with pytest.raises(
        ConfigError, match="mine-dense: only an ONNX graph can be timed, found an export to dense$"
    ):
        time_exported(exported, limits=Limits(), progress=Progress())
