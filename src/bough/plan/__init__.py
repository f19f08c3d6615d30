"""What the tasks share: the plan, its language, its cost and its picture. No torch."""
