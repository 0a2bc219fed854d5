from __future__ import annotations

import pytest
import torch

from auber.config import make_config
from auber.errors import ConfigError
from auber.training.devices import resolve_hardware


def test_auto_is_a_cpu_in_float32_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    hardware = resolve_hardware(make_config("paper", settings={"threads": 1}))
    assert (hardware.device.type, hardware.precision, hardware.threads, hardware.dtype) == (
        "cpu",
        "float32",
        1,
        torch.float32,
    )


@pytest.mark.parametrize(("device", "module"), [("cuda", torch.cuda), ("mps", torch.backends.mps)])
def test_a_device_that_is_not_here(monkeypatch, device, module):
    monkeypatch.setattr(module, "is_available", lambda: False)
    with pytest.raises(
        ConfigError, match=f"device must be one that is here, found '{device}' but torch sees n"
    ):
        resolve_hardware(make_config("paper", settings={"device": device}))
