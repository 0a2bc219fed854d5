"""The report as one HTML page that opens from disk: runs side by side, or a study."""
