"""How faithful models that were pruned without labels are to the unpruned model, on new texts.

`texts` builds queries, candidates and sentences, `measures` compares answers, `models` prunes and
runs models, `record` is the result, `tables` shows results.
"""
