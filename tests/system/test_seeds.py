from __future__ import annotations

from auber.system.seeds import derive, generator


def test_a_seed_depends_on_all_arguments():
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
    """A change would change the results of every reported seed."""
    assert derive(0, "agent", 0) == 330816607163945591
    assert derive(7, "split") == 2301575527068925106
    assert generator(3, "split").integers(0, 1000, 4).tolist() == [61, 957, 722, 943]
