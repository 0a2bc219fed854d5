"""Programs that measure and test auber itself; they are part of the repository, not of the wheel.

    python -m benchmarks.scorer     the cost of a reward, a tuning step and a whole run
    python -m benchmarks.regret     how far searches end from the best mask of a layer
    python -m benchmarks.develop    experiments, judged on rows cut from the training set
    python -m benchmarks.fidelity   models pruned without labels, beside the unpruned ones
    python -m benchmarks.soak       faults and load
    python -m benchmarks.fuzz       damaged and hostile files
    python -m benchmarks.pages      the generated pages of docs/

Only these programs import auber's internals; auber never imports them.
"""
