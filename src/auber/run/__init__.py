"""One run, in the order of its data flow.

- recipe: choose the first tuning on held-out rows, before the run (`--tune`)
- validation: check the arguments before anything is computed, and make the request
- targets: what a run removes: a number of heads, to a size, or as another run did
- fine_tuned: the model that the run starts from; pretrained: the one behind it
- request: what is to be done
- pipeline: run the stages in the run's folder, write the result
- answers: the unpruned model's answers, which are the labels of texts without any
- stages: the stages of each strategy, declared once; effort: how long each takes
- steps: what a stage does; sizes: the same for several target sizes
- trials: choose a learning rate; tunings: the rows, settings and seed of each tuning; learned:
  whether the model learned its task; fold_models: the models that score rows under crossfit
- decisions: what a method decides, by the scores of rewards, which ledger stores
- held_out: compare sizes with the unpruned model, for a tolerance
- finished: what the finished stages decided
- evaluation: score and time the models; result: the content of `result.json`
- folder: write the run's folder; resuming: whether a run can begin or go on there
- progress: report to the folder, to the caller and to experiment trackers

What others read of a finished run: files reads its folder, whose JSON files are declared by
records, stage_record, result_record and events; summary puts the result into words, and provenance
says where it was computed.
"""
