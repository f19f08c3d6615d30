"""Who teaches: models, files and recipes become answers to the training texts, kept on disk."""
