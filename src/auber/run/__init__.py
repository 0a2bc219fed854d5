"""One run, in the order of its data flow.

- validation: check the arguments before anything is computed, and make the request
- targets: what a run removes: a number of heads, to a size, or as another run did
- request: what is to be done
- fine_tuned: the model that the run starts from; pretrained: the one behind it
- stages: the stages of each strategy, declared once; effort: how long each takes
- pipeline: run the stages, write the result; evaluation: score and time the models
- steps: what a stage does: tunings, decisions (with rewards) and fold_models;
  finished: what the finished stages decided
- sizes: what the stages of several target sizes do; held_out: compare them, for a tolerance
- folder: write the run's folder; resuming: whether a run can begin or go on there
- files: read a run's folder; its JSON files are declared by records, stage_record, result_record
  and events
- result: the content of `result.json`; summary puts it into words, provenance says where it was
  computed
- progress: report to the folder, to the caller and to experiment trackers
- recipe: choose the first tuning on held-out rows, before the run
"""
