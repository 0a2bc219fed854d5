"""One run: request, stages, pipeline, folder and records."""
