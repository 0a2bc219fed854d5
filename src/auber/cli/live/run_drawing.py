"""A run as lines for a terminal."""

from __future__ import annotations

import math
import textwrap
import time

from rich.text import Text

from auber.cli.live.drawing import STATE_STYLES, Marks, Sheet, bar, cut, sparkline
from auber.cli.live.run_view import LayerView, RunState, RunView, SearchView
from auber.search.stages import is_layer_stage
from auber.system.progress import describe_seconds

# What a stop by hand or by the system is recorded as, and what to call it.
_STOPS = {"KeyboardInterrupt": "stopped by Ctrl-C", "Terminated": "stopped by the system (SIGTERM)"}


def draw_run(view: RunView, sheet: Sheet) -> list[Text]:
    """A run in at most the sheet's lines."""
    if view.state is RunState.WAITING and not view.facts:
        return [Text(f"waiting for a run in {view.folder}", "yellow")]
    head = [_title(view), _standing(view)]
    if view.result is not None:
        head.append(_result(view))
    head += _present(view, sheet)
    foot = _ending(view, sheet)
    room = None if sheet.height is None else sheet.height - len(head) - len(foot)
    layers = _layers(view, sheet, None if room is None else max(1, room - 2))
    room = None if room is None else room - len(layers)
    return cut([*head, *layers, *_events(view, 3 if room is None else min(3, room)), *foot], sheet)


def _title(view: RunView) -> Text:
    facts = view.facts
    words = f"auber {facts['kind']}  task {facts['task']}"
    if facts["kind"] == "prune":
        words += f"  method {facts['method']}"
    words += f"  seed {facts['seed']}  protocol {facts['protocol']}"
    return Text(f"{words}  model {facts['model']}", "bold")  # last: a long name may be cut


def _standing(view: RunView) -> Text:
    """Whether somebody is at work."""
    text = Text()
    text.append(view.state, STATE_STYLES[view.state])
    if view.running_seconds is not None:
        text.append(
            f" for {describe_seconds(view.running_seconds)}"
            if view.state is not RunState.STOPPED
            else ""
        )
    process = view.process
    if process is not None and view.state is not RunState.COMPLETE:
        text.append(f"  process {process.number}" + (f" on {process.host}" if process.host else ""))
        if process.silent_seconds is not None:
            text.append(f"  last sign {describe_seconds(process.silent_seconds)} ago")
    text.append(f"  in {view.folder}", "dim")  # last: a long one may be cut
    return text


def _result(view: RunView) -> Text:
    result = view.result
    assert result is not None
    return Text(
        f"dev {view.facts['metric']} {100 * result['dev']:.2f}, train {100 * result['train']:.2f}, "
        f"gap {100 * result['gap']:+.2f} points; {result['heads_removed']} of {result['heads']} heads removed; "
        f"{describe_seconds(result['seconds'])}"
    )


def _present(view: RunView, sheet: Sheet) -> list[Text]:
    """The stages beside the layers, how far the present one is, and its numbers."""
    marks = sheet.marks
    stages = Text()
    for stage in view.stages:
        if not is_layer_stage(stage.name):
            mark = {"done": marks.done, "present": marks.present, "open": marks.open}[stage.state]
            took = "" if stage.seconds is None else f" {describe_seconds(stage.seconds)}"
            stages.append(f"{mark} {stage.name}{took}   ", "dim" if stage.state == "open" else "")
    lines = [stages]
    progress = view.progress
    if progress is not None:
        share = progress.done / progress.total if progress.total else 0.0
        words = [
            f"{progress.stage:<20}",
            bar(share, 20, marks),
            f"{progress.done}/{progress.total or '?'}",
        ]
        words += (
            [f"{describe_seconds(progress.seconds_left)} left"]
            if progress.seconds_left is not None
            else []
        )
        lines.append(Text("  ".join([*words, progress.note]).rstrip()))
        if progress.finished_share is not None:
            words = [
                f"{'whole run':<20}",
                bar(progress.finished_share, 20, marks),
                f"{progress.finished_share:.0%}",
            ]
            if view.layers_left_seconds is not None:
                words.append(f"layers to come about {describe_seconds(view.layers_left_seconds)}")
            lines.append(Text("  ".join(words)))
    if view.search is not None:
        lines += _search(view.search, sheet)
    if view.tuning is not None:
        pace = view.tuning.steps_per_second
        lines.append(
            Text(
                f"loss {view.tuning.loss:.4f} at step {view.tuning.step}"
                + (f", {pace:.1f} steps a second" if pace else "")
            )
        )
    return lines


def _search(search: SearchView, sheet: Sheet) -> list[Text]:
    words = (
        f"rewards {search.rewards_asked} asked, "
        if search.rewards_asked is not None
        else "rewards "
    )
    words += f"{search.rewards_computed} computed"
    if search.rewards_per_second is not None:
        words += f", {search.rewards_per_second:.1f}/s"
    if search.best_score is not None:
        words += f"  best {search.best_score:.4f}"
        if search.given_score is not None:
            gain = 100 * (search.best_score - search.given_score)
            words += f", {'begun at' if search.given else 'unpruned'} {search.given_score:.4f} ({gain:+.2f})"
    lines = [Text(words)]
    if search.curve:
        label = (
            f"{search.curve_is} {search.curve[-1]:+.3g} "
            if search.curve_is == "return"
            else "score "
        )
        lines.append(
            Text(
                label
                + sparkline(search.curve, max(1, sheet.width - len(label)), sheet.marks.heights)
            )
        )
    return lines


def _layers(view: RunView, sheet: Sheet, room: int | None) -> list[Text]:
    """The heads of every layer, in as many columns as they need to fit."""
    if not view.layers or view.num_heads is None:
        return []
    cells = [_layer(layer, view.num_heads, sheet.marks) for layer in view.layers]
    cell_width = max(len(cell) for cell in cells) + 3
    columns = (
        1 if room is None else min(math.ceil(len(cells) / room), max(1, sheet.width // cell_width))
    )
    rows = math.ceil(len(cells) / columns)
    lines = []
    for row in range(rows):
        line = Text()
        for cell in cells[row::rows]:
            line.append_text(cell)
            line.append(" " * (cell_width - len(cell)))
        line.rstrip()
        lines.append(line)
    if room is None or rows <= room:
        return lines
    # Too many for the terminal: those around the present one.
    at_work = next(
        (view.layers.index(layer) for layer in view.layers if layer.state == "searching"), None
    )
    if at_work is None:
        at_work = next(
            (index for index, layer in enumerate(view.layers) if layer.state == "open"), rows - 1
        )
    first = min(max(0, at_work % rows - room // 2), rows - room)
    return lines[first : first + room]


def _layer(layer: LayerView, num_heads: int, marks: Marks) -> Text:
    mark = {
        "decided": marks.done,
        "searched": marks.done,
        "searching": marks.present,
        "open": marks.open,
    }[layer.state]
    text = Text(f"{mark} {layer.layer:>2} ", "dim" if layer.state == "open" else "")
    stays, style = {
        "decided": (marks.kept, "green"),
        "searched": (marks.searching, "yellow"),
        "searching": (marks.searching, "yellow"),
        "open": (marks.open, "dim"),
    }[layer.state]
    for head in range(num_heads):
        text.append(*((marks.removed, "red") if head in layer.removed else (stays, style)))
    if layer.state == "decided":
        text.append(f" {-len(layer.removed):>3}" if layer.removed else "   0")
        if layer.gain is not None:
            text.append(f" {100 * layer.gain:+.2f}", "dim")
    return text


def _events(view: RunView, most: int) -> list[Text]:
    events = view.events
    if view.error is not None and events and events[-1].text.startswith("stopped: "):
        events = events[:-1]  # the line in red says so too
    chosen = events[-most:] if most > 0 else ()
    return [
        Text(f"{time.strftime('%H:%M:%S', time.localtime(event.time))} {event.text}", "dim")
        for event in chosen
    ]


def _ending(view: RunView, sheet: Sheet) -> list[Text]:
    """Why it stopped, and how to go on; a command is shown whole."""
    lines = []
    if view.error is not None:
        lines.append(Text(_STOPS.get(view.error.partition(":")[0], view.error), "red"))
    if view.resume is not None:
        words = f"nobody is at work; go on with: {view.resume}"
        lines += [
            Text(line, "yellow")
            for line in textwrap.wrap(words, sheet.width, break_on_hyphens=False)
        ]
    return lines
