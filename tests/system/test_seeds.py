from __future__ import annotations

from auber.system.seeds import derive, generator


def test_the_derivation_is_fixed():
    """A change would change the results of every reported seed."""
    assert derive(0, "agent", 0) == 330816607163945591
    assert derive(7, "split") == 2301575527068925106
    assert generator(3, "split").integers(0, 1000, 4).tolist() == [61, 957, 722, 943]
    seeds = {derive(0, "agent"), derive(0, "agent", 0), derive(0, "agent", 1)}
    assert len(seeds) == 3
