Comparison=Evaluation=compare=evaluate=None
