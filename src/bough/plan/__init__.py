"""What the tasks share: the plan, its parser, its cost and its diagram. No torch."""
