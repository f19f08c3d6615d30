"""What a step learns by beside the plain loss: a teacher, and answers that are to be steady."""
