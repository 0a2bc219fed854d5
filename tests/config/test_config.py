from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import auber
from auber.cli.listings import plain
from auber.config import (
    PRESETS,
    Config,
    Reward,
    Search,
    make_config,
    parse_assignment,
    require_read,
    settings,
)
from auber.errors import ConfigError

SOURCE = Path(auber.__file__).parent
PAGE = SOURCE.parents[1] / "docs" / "settings.md"


def test_the_paper_preset_is_the_papers_column():
    config = make_config("paper")
    assert config == Config()
    assert (config.agent.episodes, config.agent.hidden_size, config.agent.hidden_layers) == (
        150,
        512,
        3,
    )
    assert (config.agent.epsilon_start, config.agent.epsilon_end, config.agent.epsilon_decay) == (
        1.0,
        0.05,
        256,
    )
    assert (config.agent.replay_size, config.agent.batch_size, config.agent.gamma) == (
        5000,
        128,
        1.0,
    )
    assert (config.agent.updates_per_episode, config.agent.target_every) == (1, 35)
    assert (config.search.matrix, config.search.norm, config.search.order) == (
        "value",
        "l1",
        "forward",
    )
    assert config.reward.fraction == pytest.approx(2 / 3)
    assert (config.first.epochs, config.first.learning_rate, config.first.batch_size) == (
        3,
        2e-5,
        32,
    )
    assert (config.layer.learning_rate, config.last.patience, config.max_length) == (2e-6, 20, 128)


def test_presets_know_the_tasks():
    assert make_config("paper", task="rte").first.epochs == 4
    assert make_config("paper", task="rte").first.learning_rate == 1e-5
    assert make_config("paper", task="mrpc").first.epochs == 3
    reference = make_config("reference", task="wnli")
    assert (reference.reward.fraction, reference.search.norm, reference.agent.stop_value) == (
        1.0,
        "l2",
        0.2,
    )
    assert make_config("reference", task="mrpc").reward.fraction == 0.25


def test_precedence(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[first]\nepochs = 7\nlearning_rate = 0.5\n")
    config = make_config("paper", task="rte", file=file, settings={"first.learning_rate": "0.25"})
    assert (config.first.epochs, config.first.learning_rate) == (7, 0.25)


@pytest.mark.parametrize("preset", PRESETS)
def test_toml_round_trip(preset, tmp_path):
    config = make_config(preset, task="rte", settings={"seed": 5, "agent.double_q": True})
    file = tmp_path / "config.toml"
    file.write_text(config.to_toml())
    assert make_config("paper", file=file) == config


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        make_config(
            "paper",
            settings={"agent.gama": 1, "agent.episodes": "x", "reward.stop": "nan", "seed": True},
        )
    message = str(caught.value)
    assert "Unknown setting 'agent.gama'. Did you mean 'agent.gamma'?" in message
    assert "agent.episodes must be a whole number from 0, found 'x'" in message
    assert "reward.stop must be a number, found 'nan'" in message
    assert "seed must be a whole number from 0, found True" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("agent.gamma", 1.5, "agent.gamma must be a number from 0 to 1, found 1.5"),
        ("protocol", "unseen", "protocol must be seen, heldout, crossfit, found 'unseen'"),
        ("agent.double_q", "yes", "agent.double_q must be true or false, found 'yes'"),
        ("agent.episodes", 1.5, "agent.episodes must be a whole number from 0, found 1.5"),
        ("agent.stop_value", "low", "agent.stop_value must be a number or none, found 'low'"),
    ],
)
def test_one_bad_value(key, value, message):
    with pytest.raises(ConfigError) as caught:
        make_config("paper", settings={key: value})
    assert message in str(caught.value)


def test_text_is_read_as_the_settings_type():
    config = make_config(
        "paper",
        settings={"agent.double_q": "true", "agent.stop_value": "none", "agent.episodes": "9"},
    )
    assert (config.agent.double_q, config.agent.stop_value, config.agent.episodes) == (
        True,
        None,
        9,
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [("", "all"), ("all", "all"), (" all ", "all"), ("3", "3"), ("10, 2,6", "2,6,10"), ("02", "2")],
)
def test_layers_are_kept_in_one_form(text, kept):
    assert make_config("paper", settings={"search.layers": text}).search.layers == kept


@pytest.mark.parametrize(
    "value", ["2,2", "2,02", "-1", "2;6", "2,", "1.5", "two", "\u0663", "1" * 5000, 3]
)
def test_layers_must_be_different_numbers(value):
    with pytest.raises(
        ConfigError, match="search.layers must be all, or different layers such as 2,6,10, found "
    ):
        make_config("paper", settings={"search.layers": value})


def test_the_layers_of_a_model():
    def layers(text: str) -> list[int]:
        return make_config("paper", settings={"search.layers": text}).search.layers_of(6)

    assert layers("all") == [0, 1, 2, 3, 4, 5]
    assert layers("5,0,2") == [0, 2, 5]
    message = r"^search.layers must name layers of the model, which has 6 \(0 to 5\), found 6, 11; leave out what it does"
    with pytest.raises(ConfigError, match=message):
        layers("0,6,11")


def test_unknown_preset():
    with pytest.raises(
        ConfigError,
        match="Unknown preset 'papr'. Did you mean 'paper'. Known: default, paper, reference",
    ):
        make_config("papr")


def test_an_error_names_where_a_setting_stands(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("agent.gamma = 0.5\nagent.episodes = 3\n")
    with pytest.raises(
        ConfigError, match="^settings: agent.gamma must be a number from 0 to 1, found 7$"
    ):
        make_config("paper", file=file, settings={"agent.gamma": 7})
    file.write_text("agent.gamma = 7\nagent.epsiodes = 3\n")
    message = "my.toml: agent.gamma must be a number from 0 to 1, found 7; Unknown setting 'agent.epsiodes'."
    with pytest.raises(ConfigError, match=message):
        make_config("paper", file=file)
    file.write_text("agent.gamma = 7\n")
    assert make_config("paper", file=file, settings={"agent.gamma": 0.5}).agent.gamma == 0.5


def test_a_file_may_begin_with_a_mark_of_its_encoding(tmp_path):
    (tmp_path / "my.toml").write_text("agent.episodes = 3\n", encoding="utf-8-sig")
    assert make_config("paper", file=tmp_path / "my.toml").agent.episodes == 3


def test_a_broken_file(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("agent.gamma = ")
    with pytest.raises(ConfigError, match="my.toml: cannot be read as TOML"):
        make_config("paper", file=file)
    with pytest.raises(ConfigError, match=r"none.toml: no such file; correct the path$"):
        make_config("paper", file=tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["agent.gamma", "=1", ""])
def test_an_assignment_needs_both_sides(text):
    with pytest.raises(ConfigError, match="--set takes key=value such as agent.gamma=0.9, found"):
        parse_assignment(text)


def test_a_work_that_reads_some_settings_refuses_others():
    read, advice = ("agent.*", "reward.head"), {"seed": "give --seeds"}
    require_read(["agent.gamma", "reward.head"], read, "it", advice)
    with pytest.raises(
        ConfigError, match=r"^settings: it reads agent.\*, reward.head, found seed; give --seeds$"
    ):
        require_read(["agent.gamma", "seed"], read, "it", advice)
    with pytest.raises(ConfigError, match="found reward.headroom; leave it out$"):
        require_read(["reward.headroom"], read, "it", advice)


@given(
    st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text())
)
def test_any_input_gives_a_config_or_our_error(values):
    try:
        assert isinstance(make_config("paper", settings=values), Config)
    except ConfigError as error:
        assert str(error).startswith("settings: ")  # noqa: PT017


def test_every_setting_is_read_somewhere():
    """An option nothing reads is a lie: each name must be an attribute that some module outside the declarations uses."""
    read = set()
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "config":
            read |= {
                node.attr
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute)
            }
    unread = [
        info.key
        for info in settings()
        if info.key.rpartition(".")[2] not in read and info.key != "search.matrix"
    ]
    assert unread == []


def page() -> str:
    """The table of settings, made from their declarations."""
    values = {name: make_config(name).flat() for name in PRESETS}
    lines = [
        "# Settings",
        "",
        "Every setting that `--set key=value`, a TOML file (`--config`) and `auber.make_config` take. Precedence, weakest first:",
        "defaults, preset, the preset's settings for the task and for the protocol, config file, `--set`. Written by",
        "`AUBER_REGENERATE=1 pytest tests/test_config.py -k page`.",
        "",
        f"| setting | {' | '.join(PRESETS)} | allowed | meaning |",
        f"|---|{'---|' * len(PRESETS)}---|---|",
    ]
    for info in settings():
        cells = [plain(values[name][info.key]) for name in PRESETS]
        lines.append(f"| `{info.key}` | {' | '.join(cells)} | {info.allowed} | {info.doc} |")
    lines += ["", "The presets change for some tasks:", ""]
    for name, preset in PRESETS.items():
        for task, changes in preset.per_task.items():
            words = ", ".join(f"`{key} = {plain(value)}`" for key, value in changes.items())
            lines.append(f"- `{name}`, {task}: {words}")
    lines += ["", "And under a protocol; under the others these are as in `paper`:", ""]
    for name, preset in PRESETS.items():
        for protocol, changes in preset.per_protocol.items():
            words = ", ".join(f"`{key} = {plain(value)}`" for key, value in changes.items())
            lines.append(f"- `{name}`, {protocol}: {words}")
    return "\n".join(lines) + "\n"


def test_what_a_preset_has_for_its_protocol_goes_with_it():
    own, other = make_config("default"), make_config("default", settings={"protocol": "seen"})
    assert (own.protocol, own.search.prior, own.reward.measure, own.agent.episodes) == (
        "crossfit",
        "voita",
        "smooth",
        40,
    )
    assert (other.search, other.reward, other.agent.episodes) == (Search(), Reward(), 150)
    assert (own.agent.choose, other.agent.choose) == ("best", "best")
    assert make_config("paper", settings={"protocol": "crossfit"}).search == Search()


def test_what_is_given_is_stronger_than_what_goes_with_a_protocol(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('protocol = "crossfit"\n[search]\nprior = "none"\n')
    for changed in (make_config(file=file), make_config(settings={"search.prior": "none"})):
        assert (changed.protocol, changed.search.prior, changed.reward.folds) == (
            "crossfit",
            "none",
            5,
        )
    file.write_text('protocol = "heldout"\n')
    assert make_config(file=file).search == Search()
    with pytest.raises(ConfigError, match="protocol must be seen, heldout, crossfit, found 7"):
        make_config(settings={"protocol": 7})


def test_the_page_is_made_from_the_declarations():
    if os.environ.get("AUBER_REGENERATE") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()
