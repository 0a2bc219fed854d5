"""A made-up record, for what is done with records."""

from __future__ import annotations

from auber.bench.record import (
    AgreementRecord,
    Bench,
    DeviceRecord,
    GrowthPoint,
    GrowthSeries,
    LayerRecord,
    PlainRecord,
    RewardsRecord,
    SearchRecord,
    SearchSeconds,
    SubjectRecord,
    TotalRecord,
    TuningRecord,
    TuningWayRecord,
)


def growth_of(
    axis: str, sizes: tuple[int, ...], exponent: float, factor: float = 1.0
) -> GrowthSeries:
    points = tuple(
        GrowthPoint(size, factor * size**exponent, 0.5, 0.4 * size**exponent) for size in sizes
    )
    return GrowthSeries(axis, exponent, exponent, points)


def make_growth(factor: float = 1.0) -> tuple[GrowthSeries, ...]:
    return (
        growth_of("rows", (415, 830, 1660, 3320), 0.9, 0.01 * factor),
        growth_of("layers", (6, 12, 18, 24), 1.1, factor),
        growth_of("heads", (3, 6, 12, 24), 0.05, factor),
    )


def make_bench(**changes: object) -> Bench:
    agreement = AgreementRecord(9, 0.03, 0.25, 12, 14940, 0.004, 0.001)
    values: dict[str, object] = {
        "command": "auber bench --size base --rows rte",
        "subject": SubjectRecord(
            "BERT base, random weights", "bert", "sdpa", 12, 12, 768, 3072, 109_483_778,
            "rte-like", "accuracy", 1660, 110_000, 128, 2490, 0,
        ),
        "device": DeviceRecord("NVIDIA H200", "bfloat16", 8, 8192, 786.0, 0.5),
        "rewards": RewardsRecord(
            PlainRecord("float32", 32, "every row to 128", 1040.0, 9, 0.9615),
            PlainRecord("bfloat16", 256, "sorted by length, to the longest of a batch", 104.0, 9, 9.615),
            (
                LayerRecord(0, 1.5, 30.0, 33.3333, 64, 29.0, 34.6667, 3.46667, 20.0, 0.666667),
                LayerRecord(11, 1.0, 0.5, 2000.0, 64, 0.1, 2080.0, 208.0, 0.05, 0.1),
            ),
            TotalRecord(2, 15.25, 65.5738, 68.1967, 6.81967, 10.025, 0.657377, 2.5),
            agreement,
            agreement,
        ),
        "tuning": TuningRecord(
            32, 1660, TuningWayRecord(104, 10.4, 10.0), TuningWayRecord(104, 2.6, 40.0), 4.0
        ),
        "search": SearchRecord(
            "paper", "seen", 150, 9000, 3500, 1200, 80, 144, SearchSeconds(60.0, 5.0, 30.0, 1.0, 4.0, 100.0)
        ),
        "growth": make_growth(),
        "seconds": 300.0,
        "provenance": {
            "versions": {"python": "3.12.0", "torch": "2.11.0"},
            "commit": {"id": "0123456789abcdef", "dirty": False},
            "device": "NVIDIA H200",
            "precision": "bfloat16",
            "threads": 8,
        },
    }  # fmt: skip
    return Bench(**{**values, **changes})
