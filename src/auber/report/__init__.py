"""Reports: finished runs as tables with intervals and verdicts, and as one HTML page with figures.

`runs` and `results_file` read runs, `analysis` compares them, `answer` judges, `tables` and `page`
write. The same runs give the same bytes. Nothing here imports torch.
"""
