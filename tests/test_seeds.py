from __future__ import annotations

from auber.seeds import derive, generator


def test_a_seed_depends_on_all_three():
    seeds = {
        derive(0, "agent", 0),
        derive(1, "agent", 0),
        derive(0, "split", 0),
        derive(0, "agent", 1),
        derive(0, "agent"),
    }
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_derivation_is_fixed():
    assert derive(0, "agent", 0) == derive(0, "agent", 0)
    assert generator(3, "split").random(4).tolist() == generator(3, "split").random(4).tolist()
