"""Reading settings: precedence, conversion, errors and TOML."""

from __future__ import annotations

import ast
from pathlib import Path

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import auber
from auber.config import PRESETS, Agent, Config, make_config, parse_assignment, settings
from auber.errors import ConfigError

SOURCE = Path(auber.__file__).parent


def test_precedence(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[first]\nepochs = 7\nlearning_rate = 0.5\n")
    own = {"first.learning_rate": "0.25"}
    otherwise = {"first.epochs": 9, "max_length": 99}
    config = make_config("paper", task="rte", file=file, settings=own, otherwise=otherwise)
    assert (config.first.epochs, config.first.learning_rate, config.max_length) == (7, 0.25, 99)


@pytest.mark.parametrize("preset", PRESETS)
def test_toml_round_trip(preset, tmp_path):
    config = make_config(preset, task="rte", settings={"seed": 5, "agent.double_q": True})
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    assert make_config("paper", file=file).flat() == config.flat()
    assert (config.first.learning_rate == config.last.learning_rate == "auto") == (
        preset == "default"
    )


def test_all_problems_are_reported_at_once():
    own = {"agent.gama": 1, "agent.episodes": "x", "reward.stop": "nan", "seed": True, "agent": 1}
    own |= {1: 2}
    with pytest.raises(ConfigError) as caught:
        make_config("paper", settings=own)
    message = str(caught.value)
    for problem in (
        "Unknown setting '1'. 'auber list settings' lists all",
        "Unknown setting 'agent.gama'. Did you mean 'agent.gamma'? 'auber list settings' lists all",
        "agent.episodes must be a whole number from 0, found 'x'",
        "reward.stop must be a number, found 'nan'",
        "seed must be a whole number from 0, found True",
        "'agent' is a group of settings, not a setting; name one of them, such as agent.episodes",
    ):
        assert problem in message
    assert message.startswith("settings: ")
    assert "\n" not in message


LAYERS = "search.layers must be all, or different layers such as 2,6,10, found "
RATE = "first.learning_rate must be a number from 0, or auto, found "
SIZES = "size.keep must be a share from 0 to 1, or different shares such as 0.5,0.25, found "
REFUSED = [
    ("agent.gamma", 1.5, "agent.gamma must be a number from 0 to 1, found 1.5"),
    ("protocol", "unseen", "protocol must be seen, heldout, crossfit, found 'unseen'"),
    ("agent.double_q", "yes", "agent.double_q must be true or false, found 'yes'"),
    ("agent.double_q", 1, "agent.double_q must be true or false, found 1"),
    ("agent.episodes", 1.5, "agent.episodes must be a whole number from 0, found 1.5"),
    ("agent.episodes", 2.0, "agent.episodes must be a whole number from 0, found 2.0"),
    ("agent.stop_value", "low", "agent.stop_value must be a number or none, found 'low'"),
    ("agent.gamma", None, "agent.gamma must be a number from 0 to 1, found None"),
    ("agent.gamma", 10**400, "agent.gamma must be a number from 0 to 1, found 1000"),
    ("seed", 2**63, f"seed must be at most {2**63 - 1}, found {2**63}"),
    ("seed", 10**5000, "found a number of thousands of digits"),
    *(("search.layers", value, LAYERS) for value in ("2,2", "2,02", "-1", "2;6", "2,", "1.5")),
    *(("search.layers", value, LAYERS) for value in ("two", "\u0663", "1" * 5000, 3)),
    *(("first.learning_rate", value, RATE) for value in (-1e-5, "fast", "nan", True, None)),
    *(("size.keep", value, SIZES) for value in (1.5, -0.1, "0.5,0.5", "0,0.5", "half", "0.5,")),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refuses_a_value(key, value, message):
    with pytest.raises(ConfigError) as caught:
        make_config("paper", settings={key: value})
    assert message in str(caught.value)


def test_refuses_other_arguments():
    with pytest.raises(ConfigError, match="settings: must be a mapping from key to value, found"):
        make_config(settings=["seed=1"])
    with pytest.raises(ConfigError, match="preset: must be a name, found dict"):
        make_config({"seed": 1})
    with pytest.raises(
        ConfigError,
        match="Unknown preset 'papr'. Did you mean 'paper'. Known: default, paper, reference",
    ):
        make_config("papr")


def test_a_config_is_frozen_and_checked():
    with pytest.raises(pydantic.ValidationError):
        make_config().seed = 3
    with pytest.raises(pydantic.ValidationError):
        Agent(gama=1.0)
    with pytest.raises(
        ConfigError, match="^settings: seed must be a whole number from 0, found -1"
    ):
        make_config().replace({"seed": -1})


def test_text_is_converted_to_the_type_of_the_setting():
    own = {"agent.double_q": "true", "agent.stop_value": "none", "agent.episodes": "9"}
    agent = make_config("paper", settings=own).agent
    assert (agent.double_q, agent.stop_value, agent.episodes) == (True, None, 9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "all"), ("all", "all"), (" all ", "all"), ("3", "3"), ("10, 2,6", "2,6,10"), ("02", "2")],
)
def test_layers_are_normalized(text, expected):
    assert make_config("paper", settings={"search.layers": text}).search.layers == expected


def test_the_layers_of_a_model():
    def layers(text: str) -> list[int]:
        return make_config("paper", settings={"search.layers": text}).search.layers_of(6)

    assert layers("all") == [0, 1, 2, 3, 4, 5]
    assert layers("5,0,2") == [0, 2, 5]
    message = r"^search.layers must name layers .* has 6 \(0 to 5\), found 6, 11; remove these$"
    with pytest.raises(ConfigError, match=message):
        layers("0,6,11")


def test_an_error_names_the_file_of_a_setting(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("agent.gamma = 0.5\nagent.episodes = 3\n")
    with pytest.raises(
        ConfigError, match="^settings: agent.gamma must be a number from 0 to 1, found 7$"
    ):
        make_config("paper", file=file, settings={"agent.gamma": 7})
    file.write_text("agent.gamma = 7\nagent.epsiodes = 3\n")
    message = "my.toml: agent.gamma must be .* to 1, found 7; Unknown setting 'agent.epsiodes'."
    with pytest.raises(ConfigError, match=message):
        make_config("paper", file=file)
    file.write_text("agent.gamma = 7\n", encoding="utf-8-sig")  # with a byte order mark
    assert make_config("paper", file=file, settings={"agent.gamma": 0.5}).agent.gamma == 0.5


def test_a_damaged_file(tmp_path):
    file = tmp_path / "my.toml"
    for text in ("agent.gamma = ", f"{'a.' * 600}a = 1", f"a = {'{a=' * 40}1{'}' * 40}"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="my.toml: cannot be read as TOML"):
            make_config("paper", file=file)
    with pytest.raises(ConfigError, match=r"none.toml: no such file; correct the path$"):
        make_config("paper", file=tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["agent.gamma", "=1", ""])
def test_an_assignment_needs_both_sides(text):
    assert parse_assignment(" agent.gamma = 0.9") == ("agent.gamma", "0.9")
    with pytest.raises(ConfigError, match="--set takes key=value such as agent.gamma=0.9, found"):
        parse_assignment(text)


@given(
    st.dictionaries(
        st.text() | st.sampled_from([info.key for info in settings()]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    )
)
def test_any_input_gives_a_config_or_our_error(values):
    try:
        assert isinstance(make_config("paper", settings=values), Config)
    except ConfigError as error:
        assert str(error).startswith("settings: ")  # noqa: PT017


def test_every_setting_is_read_somewhere():
    """Each setting must be an attribute that a module outside the declarations uses."""
    read = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "config":
            nodes = ast.walk(ast.parse(path.read_text()))
            read |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names = {info.key: info.key.rpartition(".")[2] for info in settings()}
    assert [key for key, name in names.items() if name not in read] == []


@pytest.mark.parametrize("value", ["auto", 3e-5, "3e-5", 0])
def test_a_learning_rate_is_a_number_or_auto(value):
    config = make_config("paper", settings={"first.learning_rate": value})
    assert config.first.learning_rate == (3e-5 if value == "3e-5" else value)
