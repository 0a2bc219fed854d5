"""The search of one layer: its state, its game and the agent that plays it.

`game` is the plain class, `agent` the deep Q-network; `env` shows the same game to any Gymnasium agent and is an import of
its own, because nothing else here needs that package.
"""
