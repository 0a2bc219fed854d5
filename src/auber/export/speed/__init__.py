"""What pruning buys: parameters, multiply-adds, latency and throughput of a pruned model beside the unpruned one.

`request` is what can be asked for, `subjects` the models, `arithmetic` counts, `clock` times two calls side by side,
`ways` are the runtimes they are timed in, `ratio` says what a row of pairs shows, `measure` does it all in order, `record` is
what comes out and `tables` its words. `saving` asks the same of a single head, for a search that is paid for time.
"""
