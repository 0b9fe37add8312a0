"""What is kept on disk: files, checkpoints, run directories."""
